"""6  Labels become findings: counts and rates with intervals, what changed, what was expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from beacon.expectations import check
from beacon.findings import (
    CellRow,
    Change,
    Findings,
    FramingRow,
    Moved,
    Rate,
    Tally,
    TechnicalFailures,
)
from beacon.records import CATEGORIES, Category, StatusKind
from beacon.stats.rates import wilson
from beacon.store_reader import Cell
from beacon.study import Study

LEVEL = 0.95


def compare(
    study: Study,
    cells: Sequence[Cell],
    statuses: Mapping[str, Mapping[StatusKind, int]],
    *,
    classifier: str,
    version: str,
) -> Findings:
    """The findings of a run, from its counted labels."""
    by_key = {(cell.model, cell.framing_id, cell.question_id): cell for cell in cells}
    by_question = tuple(_cell_rows(study, by_key))
    by_framing = tuple(_framing_rows(study, by_key))
    changes = tuple(_changes(study, by_framing, by_question))
    return Findings(
        beacon=version,
        study=study.name,
        study_id=study.id,
        title=study.title or study.name,
        classifier=classifier,
        baseline=study.baseline_id,
        level=LEVEL,
        n_calls=study.n_calls,
        n_responses=sum(row.tally.n for row in by_question),
        headlines=tuple(_headlines(study, by_framing, changes)),
        by_framing=by_framing,
        by_question=by_question,
        changes=changes,
        expectations=check(study, by_question),
        statuses=tuple(
            TechnicalFailures(model=model, counts=dict(counts))
            for model, counts in sorted(statuses.items())
        ),
        cautions=tuple(
            f"{entry.label}: {entry.caution}" for entry in study.models if entry.caution
        ),
    )


Cells = Mapping[tuple[str, str, str], Cell]


def _cell_rows(study: Study, cells: Cells) -> list[CellRow]:
    return [
        CellRow(
            model=entry.label,
            framing=framing.id,
            question=question.id,
            tally=_tally([cells.get((entry.label, framing.id, question.id))], study.repeats),
        )
        for entry in study.models
        for question in study.questions
        for framing in study.framings
    ]


def _framing_rows(study: Study, cells: Cells) -> list[FramingRow]:
    questions = [question.id for question in study.questions if not question.control]
    questions = questions or [question.id for question in study.questions]
    return [
        FramingRow(
            model=entry.label,
            framing=framing.id,
            tally=_tally(
                [cells.get((entry.label, framing.id, question)) for question in questions],
                study.repeats * len(questions),
            ),
        )
        for entry in study.models
        for framing in study.framings
    ]


def _tally(cells: Sequence[Cell | None], n_planned: int) -> Tally:
    held = [cell for cell in cells if cell is not None]
    counts: dict[Category, int] = {
        category: sum(cell.counts.get(category, 0) for cell in held) for category in CATEGORIES
    }
    n = sum(counts.values())
    n_answered = n - counts["technical_failure"]
    rates = {
        category: _rate(counts[category], n if category == "technical_failure" else n_answered)
        for category in CATEGORIES
    }
    length = sum(cell.answered_length for cell in held)
    return Tally(
        counts=counts,
        rates=rates,
        n_answered=n_answered,
        n_owed=n_planned - n,
        mean_length=length / n_answered if n_answered else None,
    )


def _rate(n_hits: int, n: int) -> Rate:
    interval = wilson(n_hits, n, level=LEVEL)
    return Rate(
        n=n_hits, of=n, value=n_hits / n if n else None, low=interval.low, high=interval.high
    )


def _changes(
    study: Study, by_framing: Sequence[FramingRow], by_question: Sequence[CellRow]
) -> list[Change]:
    rows = {(row.model, row.framing): row.tally for row in by_framing}
    cells = {(row.model, row.framing, row.question): row.tally for row in by_question}
    baseline = study.baseline_id
    return [
        Change(
            model=entry.label,
            framing=framing.id,
            baseline=baseline,
            points=_points(rows[entry.label, baseline], rows[entry.label, framing.id]),
            mean_length=_minus(
                rows[entry.label, framing.id].mean_length, rows[entry.label, baseline].mean_length
            ),
            n_compared=len(compared),
            moved=tuple(moved for moved in compared if moved.before != moved.after),
        )
        for entry in study.models
        for framing in study.framings
        if framing.id != baseline
        for compared in [_dominants(study, cells, entry.label, framing.id)]
    ]


def _dominants(
    study: Study, cells: Mapping[tuple[str, str, str], Tally], model: str, framing: str
) -> list[Moved]:
    """The dominant categories under the baseline and a framing, where both have one."""
    pairs = (
        (
            question.id,
            cells[model, study.baseline_id, question.id],
            cells[model, framing, question.id],
        )
        for question in study.questions
        if not question.control
    )
    return [
        Moved(question=question, before=before.dominant, after=after.dominant)
        for question, before, after in pairs
        if before.dominant and after.dominant
    ]


def _points(before: Tally, after: Tally) -> dict[Category, float | None]:
    differences = {
        category: _minus(after.rates[category].value, before.rates[category].value)
        for category in CATEGORIES
    }
    return {
        category: None if value is None else 100 * value for category, value in differences.items()
    }


def _minus(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first - second


def _headlines(
    study: Study, by_framing: Sequence[FramingRow], changes: Sequence[Change]
) -> list[str]:
    """One or two sentences for each model; they say what was seen, not what it proves."""
    titles = {question.id: question.topic or question.id for question in study.questions}
    sentences = []
    for entry in study.models:
        rows = [row for row in by_framing if row.model == entry.label]
        answered = sum(row.tally.n_answered for row in rows)
        if answered == 0:
            sentences.append(f"{entry.label} gave no answer that could be counted.")
            continue
        refused = ", ".join(f"{_share(row.tally)} under {row.framing}" for row in rows)
        sentences.append(f"{entry.label} refused {refused}.")
        moved = [
            f"{titles[moved.question]} "
            f"({change.framing}: {_words(moved.before)} → {_words(moved.after)})"
            for change in changes
            if change.model == entry.label
            for moved in change.moved
        ]
        n_compared = sum(change.n_compared for change in changes if change.model == entry.label)
        if moved:
            told = f"the most common category is not the one under {study.baseline_id} for "
            sentences.append(f"{entry.label}: {told}{', '.join(moved)}.")
        elif n_compared:
            sentences.append(
                f"{entry.label}: no question changes its most common category from "
                f"{study.baseline_id} to another framing, in {n_compared} comparisons."
            )
        else:
            sentences.append(f"{entry.label}: no two framings could be compared.")
    return sentences


def _share(tally: Tally) -> str:
    rate = tally.rates["content_refusal"]
    if rate.value is None:
        return "none of 0"
    return f"{rate.n} of {rate.of} ({100 * rate.low:.0f}–{100 * rate.high:.0f} %)"  # noqa: RUF001


def _words(category: Category | None) -> str:
    return "no single one" if category is None else category.replace("_", " ")
