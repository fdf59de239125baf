"""Whether what a study expected came true: met, not met or not tested, and why."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from beacon.findings import CellRow, ExpectationResult, Outcome, Tally
from beacon.records import Category
from beacon.study import Claim, Expectation, Study

Verdict = tuple[Outcome, str]
Cells = Mapping[tuple[str, str], Tally]
"""One model's tallies by framing and question."""

# An underscore is a decimal point in `qwen2_5`, and only a gap in `llama_3.2_1b`.
_TOKENS = re.compile(r"\d+(?:\.\d+)+|\d+_\d+(?!_?\d)|\d+|[a-z]+")


def name_tokens(name: str) -> list[str]:
    """The words and numbers of a model's name: `qwen2.5:1.5b` is qwen, 2.5, 1.5, b."""
    return [token.replace("_", ".") for token in _TOKENS.findall(name.lower())]


def is_about(pattern: str, name: str) -> bool:
    """Whether a model called `name` is the one that `pattern` means.

    The pattern's words and numbers must stand in the name in the same order, without a gap, so that
    `Llama 3.2-1B` is `meta-llama/Llama-3.2-1B-Instruct` and not `llama-3.2-11b`.
    """
    wanted, tokens = name_tokens(pattern), name_tokens(name)
    return bool(wanted) and any(
        tokens[i : i + len(wanted)] == wanted for i in range(len(tokens) - len(wanted) + 1)
    )


def check(study: Study, cells: Sequence[CellRow]) -> tuple[ExpectationResult, ...]:
    """The outcome of every expectation of the study."""
    return tuple(_check_one(study, item, cells) for item in study.expectations)


def _check_one(study: Study, item: Expectation, cells: Sequence[CellRow]) -> ExpectationResult:
    names = [
        entry.label
        for entry in study.models
        if not item.models
        or any(is_about(wanted, f"{entry.label} {entry.spec}") for wanted in item.models)
    ]
    verdicts = [(name, _for_model(study, item, _of(cells, name))) for name in names]
    tested = [(name, verdict) for name, verdict in verdicts if verdict[0] != "not tested"]
    outcome: Outcome
    if not names:
        outcome, why = "not tested", f"no model called {' or '.join(item.models)} was asked"
    elif not tested:
        outcome, why = "not tested", _join(verdicts)
    else:
        failed = any(verdict[0] == "not met" for _, verdict in tested)
        outcome, why = ("not met" if failed else "met"), _join(verdicts)
    return ExpectationResult(
        id=item.id, says=item.says, source=item.source, outcome=outcome, why=why
    )


def _of(cells: Sequence[CellRow], model: str) -> Cells:
    return {(cell.framing, cell.question): cell.tally for cell in cells if cell.model == model}


def _join(verdicts: Sequence[tuple[str, Verdict]]) -> str:
    return "; ".join(f"{name}: {why}" for name, (_, why) in verdicts)


def _for_model(study: Study, item: Expectation, cells: Cells) -> Verdict:
    framings = item.framings or tuple(framing.id for framing in study.framings)
    questions = item.questions or tuple(q.id for q in study.questions if not q.control)
    chosen = {
        key: tally for key, tally in cells.items() if key[0] in framings and key[1] in questions
    }
    if not any(tally.n for tally in chosen.values()):
        return "not tested", "no responses"
    if item.claim in _BY_COUNT:
        assert item.category is not None
        return _BY_COUNT[item.claim](chosen, item.category)
    if item.claim == "longer_than_baseline":
        return _longer(cells, framings, questions, study.baseline_id)
    if item.claim == "differs_more_than_controls":
        controls = tuple(q.id for q in study.questions if q.control)
        return _more_than_controls(cells, framings, questions, controls)
    return _by_framing(
        chosen, framings, questions, expect_same=item.claim == "same_in_all_framings"
    )


def _counted(cells: Cells, category: Category) -> tuple[int, int]:
    """How many have the category, of how many that could have had it."""
    n_hits = sum(tally.counts[category] for tally in cells.values())
    of_all = category == "technical_failure"
    return n_hits, sum(tally.n if of_all else tally.n_answered for tally in cells.values())


def _by_share(holds: Callable[[int, int], bool]) -> Callable[[Cells, Category], Verdict]:
    def verdict(cells: Cells, category: Category) -> Verdict:
        n_hits, n = _counted(cells, category)
        if n == 0:
            return "not tested", "nothing but technical failures"
        return _outcome(holds(n_hits, n)), f"{n_hits} of {n} are {_words(category)}"

    return verdict


def _most(cells: Cells, category: Category) -> Verdict:
    """More than half of the answers to each question."""
    shares = []
    for question in dict.fromkeys(question for _, question in cells):
        n_hits, n = _counted(
            {key: tally for key, tally in cells.items() if key[1] == question}, category
        )
        shares.append((question, n_hits, n))
    told = ", ".join(f"{question} {n_hits} of {n}" for question, n_hits, n in shares)
    if any(n_hits * 2 <= n for _, n_hits, n in shares if n):
        return "not met", f"{_words(category)}: {told}"
    if any(n == 0 for _, _, n in shares):
        empty = ", ".join(question for question, _, n in shares if n == 0)
        return "not tested", f"nothing but technical failures on {empty}"
    return "met", f"{_words(category)}: {told}"


_BY_COUNT: dict[Claim, Callable[[Cells, Category], Verdict]] = {
    "all_are": _by_share(lambda n_hits, n: n_hits == n),
    "some_are": _by_share(lambda n_hits, n: n_hits > 0),
    "none_are": _by_share(lambda n_hits, n: n_hits == 0),
    "most_are": _most,
}


def _differing(
    cells: Cells, framings: Sequence[str], questions: Sequence[str]
) -> tuple[list[str], int]:
    """Questions whose dominant category is not the same in all framings, of how many comparable.

    A question with a tie in one of the framings has no dominant category there to compare.
    """
    differing, n_comparable = [], 0
    for question in questions:
        tallies = [cells.get((framing, question)) for framing in framings]
        if any(tally is None or tally.dominant is None for tally in tallies):
            continue
        n_comparable += 1
        if len({tally.dominant for tally in tallies if tally}) > 1:
            differing.append(question)
    return differing, n_comparable


def _by_framing(
    cells: Cells, framings: Sequence[str], questions: Sequence[str], *, expect_same: bool
) -> Verdict:
    differing, n = _differing(cells, framings, questions)
    if n == 0 or len(framings) < 2:
        return "not tested", "no question was answered in at least two framings"
    if differing:
        told = f"the dominant category differs on {len(differing)} of {n}: {', '.join(differing)}"
        return _outcome(not expect_same), told
    if n < len(questions):
        return "not tested", f"only {n} of {len(questions)} questions could be compared"
    return _outcome(expect_same), f"the same category dominates in all framings on all {n}"


def _more_than_controls(
    cells: Cells, framings: Sequence[str], questions: Sequence[str], controls: Sequence[str]
) -> Verdict:
    differing, n = _differing(cells, framings, questions)
    differing_controls, n_controls = _differing(cells, framings, controls)
    if n == 0 or n_controls == 0 or len(framings) < 2:
        return "not tested", "no control or no question was answered in at least two framings"
    told = (
        f"the dominant category differs on {len(differing)} of {n} questions and "
        f"{len(differing_controls)} of {n_controls} controls"
    )
    return _outcome(len(differing) / n > len(differing_controls) / n_controls), told


def _longer(
    cells: Cells, framings: Sequence[str], questions: Sequence[str], baseline: str
) -> Verdict:
    means = {
        framing: _mean_length(cells, framing, questions)
        for framing in dict.fromkeys([baseline, *framings])
    }
    if len(means) < 2 or any(mean is None for mean in means.values()):
        return "not tested", "the baseline or a framing beside it has no answers to measure"
    told = ", ".join(f"{framing} {mean:.0f}" for framing, mean in means.items())
    others = [mean for framing, mean in means.items() if framing != baseline]
    base = means[baseline]
    holds = base is not None and all(mean is not None and mean > base for mean in others)
    return _outcome(holds), f"mean length in characters: {told}"


def _mean_length(cells: Cells, framing: str, questions: Sequence[str]) -> float | None:
    tallies = [cells[framing, question] for question in questions if (framing, question) in cells]
    n = sum(tally.n_answered for tally in tallies)
    if n == 0:
        return None
    return sum((tally.mean_length or 0.0) * tally.n_answered for tally in tallies) / n


def _outcome(holds: bool) -> Outcome:
    return "met" if holds else "not met"


def _words(category: Category) -> str:
    return category.replace("_", " ")
