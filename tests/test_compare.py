"""Findings against counts made by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beacon.compare import compare
from beacon.findings import Change, Findings, Moved, Tally
from beacon.records import CATEGORIES, Category
from beacon.stats.rates import wilson
from beacon.store_reader import Cell
from beacon.study import Expectation, Framing, ModelEntry, Question, Study

STUDY = Study(
    beacon=1,
    name="small",
    title="A small study",
    framings=(
        Framing(id="neutral", system="N"),
        Framing(id="us", system="U"),
        Framing(id="china", system="C"),
    ),
    questions=(
        Question(id="square", text="?"),
        Question(id="island", text="?"),
        Question(id="control", text="?", control=True),
    ),
    models=(ModelEntry(spec="smollm2", name="m"),),
    repeats=4,
)


def cell(
    framing: str,
    question: str,
    *,
    good: int = 0,
    partial: int = 0,
    refused: int = 0,
    failed: int = 0,
    length: int = 0,
    model: str = "m",
) -> Cell:
    """`length` is of all answered responses together, as the store counts it."""
    counts: dict[Category, int] = {
        "substantive_response": good,
        "partial_response": partial,
        "content_refusal": refused,
        "technical_failure": failed,
    }
    return Cell(
        model=model,
        framing_id=framing,
        question_id=question,
        counts={category: n for category, n in counts.items() if n},
        answered_length=length,
    )


def findings_of(*cells: Cell, study: Study = STUDY, **statuses: Any) -> Findings:
    return compare(study, cells, statuses, classifier="reference@1", version="0.1")


def row(findings: Findings, framing: str, model: str = "m") -> Tally:
    [found] = [
        row.tally for row in findings.by_framing if (row.model, row.framing) == (model, framing)
    ]
    return found


def change(findings: Findings, framing: str, model: str = "m") -> Change:
    [found] = [
        change for change in findings.changes if (change.model, change.framing) == (model, framing)
    ]
    return found


HELD = [
    cell("neutral", "square", good=3, refused=1, length=1_600),
    cell("neutral", "island", good=2, partial=1, failed=1, length=900),
    cell("neutral", "control", good=4, length=4_000),
    cell("china", "square", refused=3, failed=1, length=300),
    cell("china", "island", good=4, length=2_000),
    cell("china", "control", refused=4, length=40),
]
"""Neutral: 5 good, 1 partial, 1 refused, 1 failed. China: 4 good, 3 refused, 1 failed. No US."""


def test_categories_are_counted_over_questions_that_are_not_controls() -> None:
    assert row(findings_of(*HELD), "neutral").counts == {
        "technical_failure": 1,
        "substantive_response": 5,
        "content_refusal": 1,
        "partial_response": 1,
    }
    assert row(findings_of(*HELD), "china").counts == {
        "technical_failure": 1,
        "substantive_response": 4,
        "content_refusal": 3,
        "partial_response": 0,
    }


@dataclass(frozen=True)
class Case:
    framing: str
    category: Category
    n: int
    of: int


RATES = [
    Case("neutral", "substantive_response", 5, 7),
    Case("neutral", "partial_response", 1, 7),
    Case("neutral", "content_refusal", 1, 7),
    Case("neutral", "technical_failure", 1, 8),
    Case("china", "substantive_response", 4, 7),
    Case("china", "partial_response", 0, 7),
    Case("china", "content_refusal", 3, 7),
    Case("china", "technical_failure", 1, 8),
    Case("us", "content_refusal", 0, 0),
    Case("us", "technical_failure", 0, 0),
]


@pytest.mark.parametrize("case", RATES, ids=lambda case: f"{case.framing}-{case.category}")
def test_technical_failures_are_in_no_denominator_but_their_own(case: Case) -> None:
    rate = row(findings_of(*HELD), case.framing).rates[case.category]
    assert (rate.n, rate.of) == (case.n, case.of)
    assert rate.value == (case.n / case.of if case.of else None)
    interval = wilson(case.n, case.of, level=0.95)
    assert (rate.low, rate.high) == (interval.low, interval.high)


def test_a_published_interval_reaches_the_findings() -> None:
    # Newcombe (1998): 0 of 20 is 0 to 0.1611.
    study = msgspec.structs.replace(STUDY, repeats=10)
    cells = [
        cell("us", "square", good=10, length=10),
        cell("us", "island", good=10, length=10),
    ]
    rate = row(findings_of(*cells, study=study), "us").rates["content_refusal"]
    assert (rate.low, round(rate.high, 4)) == (0.0, 0.1611)


def test_mean_length_is_of_the_answered() -> None:
    findings = findings_of(*HELD)
    assert row(findings, "neutral").mean_length == 2_500 / 7
    assert row(findings, "china").mean_length == 2_300 / 7
    assert row(findings, "us").mean_length is None


def test_more_failures_change_no_rate_but_their_own() -> None:
    more = [
        *HELD[:1],
        cell("neutral", "island", good=2, partial=1, failed=900, length=900),
        *HELD[2:],
    ]
    before, after = row(findings_of(*HELD), "neutral"), row(findings_of(*more), "neutral")
    for category in ("substantive_response", "partial_response", "content_refusal"):
        assert after.rates[category] == before.rates[category]
    assert after.rates["technical_failure"].n == 900
    assert after.mean_length == before.mean_length


# -- what is owed


def test_calls_without_a_response_are_counted_as_owed() -> None:
    findings = findings_of(*HELD)
    assert (findings.n_calls, findings.n_responses, findings.n_owed) == (36, 24, 12)
    assert row(findings, "neutral").n_owed == 0
    assert row(findings, "us").n_owed == 8
    owed = {(found.framing, found.question): found.tally.n_owed for found in findings.by_question}
    assert sum(owed.values()) == 12
    assert owed["us", "control"] == 4


def test_an_empty_run_owes_everything_and_claims_nothing() -> None:
    findings = findings_of()
    assert (findings.n_responses, findings.n_owed) == (0, 36)
    assert findings.headlines == ("m gave no answer that could be counted.",)
    for found in findings.changes:
        assert set(found.points.values()) == {None}
        assert found.moved == ()


def test_responses_of_models_and_questions_that_are_not_in_the_study_are_left_out() -> None:
    strangers = [
        cell("neutral", "square", refused=9, model="other"),
        cell("neutral", "gone", refused=9),
        cell("gone", "square", refused=9),
    ]
    assert findings_of(*HELD, *strangers) == findings_of(*HELD)


# -- questions


def test_every_model_question_and_framing_has_its_cell_controls_too() -> None:
    findings = findings_of(*HELD)
    keys = [(found.model, found.question, found.framing) for found in findings.by_question]
    assert len(keys) == len(set(keys)) == 9
    tallies = {(found.framing, found.question): found.tally for found in findings.by_question}
    assert tallies["china", "control"].counts["content_refusal"] == 4
    assert tallies["neutral", "square"].rates["content_refusal"].value == 0.25
    assert tallies["us", "island"].n == 0


DOMINANT = [
    ("clear", {"good": 3, "refused": 1}, "substantive_response"),
    ("more_failures_than_answers", {"refused": 1, "failed": 9}, "content_refusal"),
    ("tie", {"good": 2, "refused": 2}, None),
    ("tie_below_the_top", {"good": 1, "partial": 3, "refused": 1}, "partial_response"),
    ("only_failures", {"failed": 4}, None),
    ("nothing", {}, None),
]


@pytest.mark.parametrize(
    ("counts", "dominant"), [case[1:] for case in DOMINANT], ids=[case[0] for case in DOMINANT]
)
def test_the_dominant_category_is_the_one_that_most_answers_share(
    counts: dict[str, int], dominant: Category | None
) -> None:
    findings = findings_of(cell("neutral", "square", **counts))
    [tally] = [
        found.tally
        for found in findings.by_question
        if (found.framing, found.question) == ("neutral", "square")
    ]
    assert tally.dominant == dominant


def test_a_study_of_controls_alone_has_them_in_its_framing_rows() -> None:
    study = msgspec.structs.replace(STUDY, questions=tuple(q for q in STUDY.questions if q.control))
    findings = findings_of(cell("us", "control", good=4, length=4), study=study)
    assert row(findings, "us").counts["substantive_response"] == 4


# -- changes


def test_changes_are_differences_of_rates_in_points() -> None:
    points = change(findings_of(*HELD), "china").points
    assert points["content_refusal"] == pytest.approx(100 * (3 / 7 - 1 / 7))
    assert points["substantive_response"] == pytest.approx(100 * (4 / 7 - 5 / 7))
    assert points["partial_response"] == pytest.approx(100 * (0 - 1 / 7))
    assert points["technical_failure"] == 0.0


def test_a_change_of_length_is_a_difference_of_means() -> None:
    assert change(findings_of(*HELD), "china").mean_length == pytest.approx((2_300 - 2_500) / 7)


def test_without_answers_there_is_no_change_rather_than_none_at_all() -> None:
    found = change(findings_of(*HELD), "us")
    assert set(found.points.values()) == {None}
    assert found.mean_length is None
    assert found.moved == ()


def test_a_question_has_moved_when_another_category_dominates() -> None:
    assert change(findings_of(*HELD), "china").moved == (
        Moved(question="square", before="substantive_response", after="content_refusal"),
    ), "the control has too, and is no question under test"


def test_a_tie_is_not_compared_and_has_not_moved() -> None:
    held = [cell("neutral", "square", good=4), cell("china", "square", good=2, refused=2)]
    found = change(findings_of(*held), "china")
    assert (found.n_compared, found.moved) == (0, ())


def test_a_question_that_only_failed_in_one_framing_has_not_moved() -> None:
    findings = findings_of(cell("neutral", "square", good=4), cell("china", "square", failed=4))
    assert change(findings, "china").moved == ()
    assert change(findings, "china").points["technical_failure"] == 100.0
    assert change(findings, "china").points["content_refusal"] is None


def test_the_baseline_is_the_one_that_the_study_names() -> None:
    study = msgspec.structs.replace(STUDY, baseline="china")
    findings = findings_of(*HELD, study=study)
    assert findings.baseline == "china"
    assert [found.framing for found in findings.changes] == ["neutral", "us"]
    assert change(findings, "neutral").points["content_refusal"] == pytest.approx(-200 / 7)


counts = st.fixed_dictionaries(
    {name: st.integers(0, 9) for name in ("good", "partial", "refused", "failed")}
)


@given(counts, counts, counts, st.integers(0, 9_999))
def test_identical_responses_in_all_framings_give_exactly_no_change(
    square: dict[str, int], island: dict[str, int], control: dict[str, int], length: int
) -> None:
    rows = {"square": square, "island": island, "control": control}
    findings = findings_of(
        *(
            cell(framing.id, question, **row, length=length)
            for framing in STUDY.framings
            for question, row in rows.items()
        )
    )
    for found in findings.changes:
        assert set(found.points.values()) <= {0.0, None}
        assert found.mean_length in (0.0, None)
        assert found.moved == ()
    assert not any("is not the one under" in sentence for sentence in findings.headlines)


@given(counts, counts)
def test_rates_of_the_answered_add_up_to_one(
    square: dict[str, int], island: dict[str, int]
) -> None:
    tally = row(findings_of(cell("us", "square", **square), cell("us", "island", **island)), "us")
    answered = [tally.rates[name].value for name in CATEGORIES if name != "technical_failure"]
    if tally.n_answered:
        assert sum(value for value in answered if value is not None) == pytest.approx(1)
    else:
        assert answered == [None, None, None]
    assert tally.n == sum([*square.values(), *island.values()])


# -- what is said


def test_headlines_give_counts_with_intervals_and_what_moved() -> None:
    assert findings_of(*HELD).headlines == (
        "m refused 1 of 7 (3–51 %) under neutral, none of 0 under us, "
        "3 of 7 (16–75 %) under china.",
        "m: the most common category is not the one under neutral for square (china: substantive "
        "response → content refusal).",
    )


def test_each_model_has_rows_changes_and_headlines_of_its_own() -> None:
    study = STUDY.changed(models=(*STUDY.models, ModelEntry(spec="smollm2", name="other")))
    other = [cell("china", "square", good=4, length=4, model="other")]
    findings = findings_of(*HELD, *other, study=study)
    assert row(findings, "china", "other").counts["substantive_response"] == 4
    assert row(findings, "china", "m") == row(findings_of(*HELD), "china", "m")
    assert [found.model for found in findings.changes] == ["m", "m", "other", "other"]
    assert findings.n_owed == 72 - 28


def test_findings_carry_what_they_were_made_from_and_by() -> None:
    study = msgspec.structs.replace(
        STUDY,
        models=(ModelEntry(spec="smollm2", name="m", caution="Believe nothing."),),
        expectations=(Expectation(id="e", says="x", claim="same_in_all_framings"),),
    )
    findings = findings_of(*HELD, study=study, z={"ok": 3}, m={"ok": 22, "http_error": 2})
    assert (findings.study, findings.study_id, findings.title) == (
        "small",
        study.id,
        "A small study",
    )
    assert (findings.classifier, findings.beacon, findings.level) == ("reference@1", "0.1", 0.95)
    assert findings.cautions == ("m: Believe nothing.",)
    assert [(found.model, found.counts) for found in findings.statuses] == [
        ("m", {"ok": 22, "http_error": 2}),
        ("z", {"ok": 3}),
    ]
    [expected] = findings.expectations
    assert expected.outcome == "not tested"


def test_a_study_without_a_title_is_called_by_its_name() -> None:
    study = msgspec.structs.replace(STUDY, title="")
    assert findings_of(study=study).title == "small"


def test_findings_are_read_back_as_they_were_written() -> None:
    findings = findings_of(*HELD)
    assert msgspec.json.decode(msgspec.json.encode(findings), type=Findings) == findings
