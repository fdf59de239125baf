"""What was expected: whose name is meant, and when it is met, not met or not tested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from beacon.expectations import check, is_about, name_tokens
from beacon.findings import CellRow, ExpectationResult, Tally
from beacon.study import Expectation, Framing, ModelEntry, Question, Study
from beacon.study_file import load_study

LLAMA, MISTRAL, QWEN = "Llama 3.2-1B", "Mistral 7B", "Qwen 2.5-1.5B"

IS_ABOUT = {
    LLAMA: [
        "Llama 3.2-1B",
        "meta-llama/Llama-3.2-1B-Instruct",
        "meta-llama/llama-3.2-1b-instruct:free",
        "ollama/llama3.2:1b",
        "llama3.2:1b-instruct-q4_K_M",
        "Llama-3.2-1B-Instruct-Q4_K_M.gguf",
        "gguf/models/llama_3.2_1b_instruct.gguf",
        "groq/llama-3.2-1b-preview",
        "hf/unsloth/Llama-3.2-1B-Instruct-bnb-4bit",
        "LLAMA 3.2 1B",
    ],
    MISTRAL: [
        "Mistral 7B",
        "mistral:7b",
        "mistral-7b-instruct-v0.3",
        "mistralai/Mistral-7B-Instruct-v0.2",
        "mistral/open-mistral-7b",
        "TheBloke/Mistral-7B-Instruct-v0.2-GGUF",
        "mistral_7b.gguf",
        "openrouter/mistralai/mistral-7b-instruct:free",
    ],
    QWEN: [
        "Qwen 2.5-1.5B",
        "qwen2.5:1.5b",
        "Qwen/Qwen2.5-1.5B-Instruct",
        "qwen2.5-1.5b-instruct-q4_k_m.gguf",
        "qwen2.5:1.5b-instruct-q8_0",
        "qwen2_5-1_5b-instruct",
        "qwen_2.5_1.5b",
        "dashscope/qwen2.5-1.5b-instruct",
    ],
    "Llama": ["meta-llama/Llama-3.1-8B", "llama3:70b", "nvidia/llama-3.1-nemotron-70b", "Llama"],
    "Mistral": ["mistral-large-latest", "mistral-nemo", "ollama/mistral"],
    "Qwen": ["qwen-max", "Qwen/QwQ-32B", "qwen3:4b", "deepseek-r1-distill-qwen-1.5b"],
}
IS_NOT_ABOUT = {
    LLAMA: [
        "llama-3.2-11b-vision",
        "llama-3.2-3b",
        "llama-3.1-1b",
        "llama-3.2",
        "llama-3.2-1.1b",
        "llama-3.2-vision-1b",
        "llama-1b",
        "llama-13.2-1b",
        "tinyllama-1.1b",
        "ollama/qwen2.5:1.5b",
        "3.2-1b",
        "",
    ],
    MISTRAL: [
        "mixtral-8x7b",
        "mistral-70b",
        "mistral-large",
        "ministral-8b",
        "mistral:latest",
        "mistral-small-24b",
        "mistral-nemo-12b",
        "mathstral-7b",
        "mistral-0.7b",
    ],
    QWEN: [
        "Qwen2.5-15B",
        "qwen2.5-0.5b",
        "Qwen2.5-1.5T",
        "qwen2-1.5b",
        "qwen2.5-coder-1.5b",
        "qwen2.5-7b",
        "qwen-1.5b",
        "qwen2.51.5b",
        "deepseek-r1-distill-qwen-1.5b",
    ],
    "Llama": ["ollama/qwen2.5", "llamacpp/qwen2.5", "codellama:7b", "llamaindex"],
    "Mistral": ["mixtral-8x7b", "mistralai/codestral"],
    "Qwen": ["qwq-32b", "openwen", "llama3.2:1b"],
    "": ["anything"],
    "-": ["anything"],
}


@pytest.mark.parametrize(
    ("pattern", "name"), [(pattern, name) for pattern, names in IS_ABOUT.items() for name in names]
)
def test_a_model_is_known_by_its_name_however_it_is_spelt(pattern: str, name: str) -> None:
    assert is_about(pattern, name)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [(pattern, name) for pattern, names in IS_NOT_ABOUT.items() for name in names],
)
def test_another_model_is_not_taken_for_it(pattern: str, name: str) -> None:
    assert not is_about(pattern, name)


def test_a_name_is_words_and_numbers() -> None:
    assert name_tokens("Qwen2.5:1.5b") == ["qwen", "2.5", "1.5", "b"]
    assert name_tokens("qwen2_5-1_5b") == ["qwen", "2.5", "1.5", "b"]
    assert name_tokens("llama_3.2_1b") == ["llama", "3.2", "1", "b"]
    assert name_tokens("模型") == []


# -- claims


def tally(
    *,
    good: int = 0,
    partial: int = 0,
    refused: int = 0,
    failed: int = 0,
    length: float | None = None,
) -> Tally:
    n_answered = good + partial + refused
    return Tally(
        counts={
            "substantive_response": good,
            "partial_response": partial,
            "content_refusal": refused,
            "technical_failure": failed,
        },
        rates={},
        n_answered=n_answered,
        n_owed=0,
        mean_length=(500.0 if length is None else length) if n_answered else None,
    )


GOOD, REFUSED, FAILED, NONE = tally(good=3), tally(refused=3), tally(failed=3), tally()
TIE = tally(good=1, refused=1)

Row = dict[str, Tally]
"""Tallies of one question by framing."""


def everywhere(cell: Tally) -> Row:
    return {"neutral": cell, "us": cell, "china": cell}


def cells(model: str = "m", **rows: Row) -> list[CellRow]:
    return [
        CellRow(model=model, framing=framing, question=question, tally=cell)
        for question, row in rows.items()
        for framing, cell in row.items()
    ]


def study_of(
    *items: Expectation,
    models: tuple[str, ...] = ("m",),
    framings: tuple[str, ...] = ("neutral", "us", "china"),
) -> Study:
    return Study(
        beacon=1,
        name="s",
        framings=tuple(Framing(id=framing, system=framing) for framing in framings),
        questions=(
            Question(id="square", text="?"),
            Question(id="island", text="?"),
            Question(id="control", text="?", control=True),
        ),
        models=tuple(ModelEntry(spec="smollm2", name=name) for name in models),
        expectations=items,
    )


def expect(claim: str, category: str | None = None, **fields: Any) -> Expectation:
    return Expectation(id="e", says="So it is.", claim=claim, category=category, **fields)


def outcome(item: Expectation, rows: list[CellRow], **study: Any) -> ExpectationResult:
    [result] = check(study_of(item, **study), rows)
    assert result.why
    return result


@dataclass(frozen=True)
class Case:
    id: str
    item: Expectation
    rows: dict[str, Row]
    outcome: str
    why: str


ALL_GOOD = {"square": everywhere(GOOD), "island": everywhere(GOOD), "control": everywhere(GOOD)}
ONE_REFUSED = ALL_GOOD | {"square": everywhere(GOOD) | {"china": tally(good=2, refused=1)}}
MOVED = ALL_GOOD | {"square": everywhere(GOOD) | {"china": REFUSED}}
NOTHING = {"square": everywhere(FAILED), "island": everywhere(FAILED)}

CASES = [
    # all_are
    Case(
        "all_met",
        expect("all_are", "substantive_response"),
        ALL_GOOD,
        "met",
        "18 of 18 are substantive response",
    ),
    Case(
        "all_not_met", expect("all_are", "substantive_response"), ONE_REFUSED, "not met", "17 of 18"
    ),
    Case(
        "all_not_tested",
        expect("all_are", "substantive_response"),
        NOTHING,
        "not tested",
        "nothing but technical failures",
    ),
    Case(
        "all_leaves_failures_out",
        expect("all_are", "substantive_response"),
        ALL_GOOD | {"island": everywhere(FAILED)},
        "met",
        "9 of 9",
    ),
    Case(
        "all_leaves_controls_out",
        expect("all_are", "substantive_response"),
        ALL_GOOD | {"control": everywhere(REFUSED)},
        "met",
        "18 of 18",
    ),
    # some_are
    Case(
        "some_met",
        expect("some_are", "content_refusal"),
        ONE_REFUSED,
        "met",
        "1 of 18 are content refusal",
    ),
    Case("some_not_met", expect("some_are", "content_refusal"), ALL_GOOD, "not met", "0 of 18"),
    Case(
        "some_not_tested",
        expect("some_are", "content_refusal"),
        NOTHING,
        "not tested",
        "nothing but technical failures",
    ),
    # none_are
    Case(
        "none_met",
        expect("none_are", "content_refusal"),
        ALL_GOOD,
        "met",
        "0 of 18 are content refusal",
    ),
    Case("none_not_met", expect("none_are", "content_refusal"), ONE_REFUSED, "not met", "1 of 18"),
    Case(
        "none_not_tested",
        expect("none_are", "content_refusal"),
        NOTHING,
        "not tested",
        "nothing but technical failures",
    ),
    Case("no_failures_met", expect("none_are", "technical_failure"), ALL_GOOD, "met", "0 of 18"),
    Case(
        "no_failures_counts_all_responses",
        expect("none_are", "technical_failure"),
        NOTHING,
        "not met",
        "18 of 18 are technical failure",
    ),
    # most_are
    Case(
        "most_met",
        expect("most_are", "substantive_response"),
        ONE_REFUSED,
        "met",
        "square 8 of 9, island 9 of 9",
    ),
    Case(
        "most_means_each_question",
        expect("most_are", "substantive_response"),
        ALL_GOOD | {"island": everywhere(REFUSED)},
        "not met",
        "island 0 of 9",
    ),
    Case(
        "most_is_more_than_half",
        expect("most_are", "content_refusal"),
        {"square": {"neutral": TIE}, "island": {"neutral": REFUSED}},
        "not met",
        "square 1 of 2",
    ),
    Case(
        "most_is_counted_over_framings",
        expect("most_are", "content_refusal"),
        {"square": everywhere(REFUSED) | {"us": GOOD}, "island": everywhere(REFUSED)},
        "met",
        "square 6 of 9",
    ),
    Case(
        "most_not_tested",
        expect("most_are", "substantive_response"),
        ALL_GOOD | {"island": everywhere(FAILED)},
        "not tested",
        "nothing but technical failures on island",
    ),
    Case(
        "most_of_one_question",
        expect("most_are", "substantive_response", questions=("square",)),
        ALL_GOOD | {"island": everywhere(REFUSED)},
        "met",
        "square 9 of 9",
    ),
    # same_in_all_framings
    Case(
        "same_met",
        expect("same_in_all_framings"),
        ONE_REFUSED,
        "met",
        "the same category dominates in all framings on all 2",
    ),
    Case(
        "same_not_met",
        expect("same_in_all_framings"),
        MOVED,
        "not met",
        "differs on 1 of 2: square",
    ),
    Case(
        "same_not_tested",
        expect("same_in_all_framings"),
        NOTHING,
        "not tested",
        "in at least two framings",
    ),
    Case(
        "same_in_some_framings",
        expect("same_in_all_framings", framings=("neutral", "us")),
        MOVED,
        "met",
        "on all 2",
    ),
    Case(
        "same_in_one_framing_says_nothing",
        expect("same_in_all_framings", framings=("us",)),
        ALL_GOOD,
        "not tested",
        "in at least two framings",
    ),
    Case(
        "same_needs_every_question",
        expect("same_in_all_framings"),
        MOVED | {"square": everywhere(GOOD) | {"us": FAILED, "china": REFUSED}},
        "not tested",
        "only 1 of 2 questions could be compared",
    ),
    Case(
        "same_leaves_controls_out",
        expect("same_in_all_framings"),
        ALL_GOOD | {"control": everywhere(GOOD) | {"us": REFUSED}},
        "met",
        "on all 2",
    ),
    # differs_between_framings
    Case(
        "differs_met", expect("differs_between_framings"), MOVED, "met", "differs on 1 of 2: square"
    ),
    Case("differs_not_met", expect("differs_between_framings"), ALL_GOOD, "not met", "on all 2"),
    Case(
        "differs_not_tested",
        expect("differs_between_framings"),
        NOTHING,
        "not tested",
        "in at least two framings",
    ),
    Case(
        "differs_in_one_framing_says_nothing",
        expect("differs_between_framings", framings=("us",)),
        ALL_GOOD,
        "not tested",
        "in at least two framings",
    ),
    # differs_more_than_controls
    Case(
        "more_than_controls_met",
        expect("differs_more_than_controls"),
        MOVED,
        "met",
        "1 of 2 questions and 0 of 1 controls",
    ),
    Case(
        "more_than_controls_in_two_framings",
        expect("differs_more_than_controls", framings=("neutral", "china")),
        MOVED,
        "met",
        "1 of 2 questions and 0 of 1 controls",
    ),
    Case(
        "more_than_controls_not_met_when_equal",
        expect("differs_more_than_controls"),
        ALL_GOOD,
        "not met",
        "0 of 2 questions and 0 of 1 controls",
    ),
    Case(
        "more_than_controls_not_met_when_less",
        expect("differs_more_than_controls"),
        MOVED | {"control": everywhere(GOOD) | {"china": REFUSED}},
        "not met",
        "1 of 2 questions and 1 of 1 controls",
    ),
    Case(
        "more_than_controls_needs_controls",
        expect("differs_more_than_controls"),
        MOVED | {"control": everywhere(FAILED)},
        "not tested",
        "no control or no question",
    ),
    Case(
        "more_than_controls_needs_questions",
        expect("differs_more_than_controls"),
        NOTHING | {"control": everywhere(GOOD)},
        "not tested",
        "no control or no question",
    ),
    Case(
        "more_than_controls_in_one_framing_says_nothing",
        expect("differs_more_than_controls", framings=("us",)),
        ALL_GOOD,
        "not tested",
        "in at least two framings",
    ),
    # longer_than_baseline
    Case(
        "longer_met",
        expect("longer_than_baseline"),
        {
            "square": {
                "neutral": tally(good=3, length=100),
                "us": tally(good=3, length=101),
                "china": tally(good=3, length=200),
            }
        },
        "met",
        "neutral 100, us 101, china 200",
    ),
    Case(
        "longer_not_met_by_one",
        expect("longer_than_baseline"),
        {
            "square": {
                "neutral": tally(good=3, length=100),
                "us": tally(good=3, length=99),
                "china": tally(good=3, length=200),
            }
        },
        "not met",
        "us 99",
    ),
    Case(
        "longer_not_met_when_equal",
        expect("longer_than_baseline"),
        ALL_GOOD,
        "not met",
        "neutral 500, us 500",
    ),
    Case(
        "longer_of_the_framings_named",
        expect("longer_than_baseline", framings=("china",)),
        {
            "square": {
                "neutral": tally(good=3, length=100),
                "us": tally(good=3, length=99),
                "china": tally(good=3, length=200),
            }
        },
        "met",
        "neutral 100, china 200",
    ),
    Case(
        "longer_weighs_by_answers",
        expect("longer_than_baseline", framings=("us",)),
        {
            "square": {"neutral": tally(good=1, length=100), "us": tally(good=3, length=90)},
            "island": {"neutral": tally(good=3, length=200), "us": tally(good=1, length=400)},
        },
        "not met",
        "neutral 175, us 168",
    ),
    Case(
        "longer_not_tested",
        expect("longer_than_baseline"),
        ALL_GOOD
        | {
            "square": everywhere(GOOD) | {"us": FAILED},
            "island": everywhere(GOOD) | {"us": FAILED},
        },
        "not tested",
        "has no answers to measure",
    ),
    Case(
        "longer_needs_another_framing",
        expect("longer_than_baseline", framings=("neutral",)),
        ALL_GOOD,
        "not tested",
        "has no answers to measure",
    ),
    # Anything at all.
    Case(
        "no_responses",
        expect("none_are", "content_refusal"),
        {"square": everywhere(NONE)},
        "not tested",
        "no responses",
    ),
    Case("no_cells", expect("same_in_all_framings"), {}, "not tested", "no responses"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_claim_is_met_not_met_or_not_tested(case: Case) -> None:
    result = outcome(case.item, cells(**case.rows))
    assert (result.outcome, case.why in result.why) == (case.outcome, True), result.why


def test_every_claim_is_met_not_met_and_not_tested_above() -> None:
    seen = {(case.item.claim, case.outcome) for case in CASES}
    claims = {claim for claim, _ in seen}
    assert len(claims) == 8
    assert seen == {
        (claim, outcome) for claim in claims for outcome in ("met", "not met", "not tested")
    }


@pytest.mark.parametrize("claim", ["differs_between_framings", "same_in_all_framings"])
def test_a_tie_can_be_compared_with_nothing(claim: str) -> None:
    rows = cells(square=everywhere(GOOD) | {"china": TIE})
    assert outcome(expect(claim), rows).outcome == "not tested"


def test_a_study_with_one_framing_cannot_test_what_framings_do() -> None:
    rows = cells(square={"neutral": GOOD}, control={"neutral": GOOD})
    for claim in (
        "same_in_all_framings",
        "differs_between_framings",
        "longer_than_baseline",
        "differs_more_than_controls",
    ):
        assert outcome(expect(claim), rows, framings=("neutral",)).outcome == "not tested"


def test_controls_and_questions_are_compared_by_their_shares() -> None:
    study = study_of(expect("differs_more_than_controls"))
    second = Question(id="second", text="?", control=True)
    study = msgspec.structs.replace(study, questions=(*study.questions, second))
    moved = everywhere(GOOD) | {"china": REFUSED}
    rows = cells(square=moved, island=moved, control=moved, second=everywhere(GOOD))
    [result] = check(study, rows)
    assert result.outcome == "met"
    assert "2 of 2 questions and 1 of 2 controls" in result.why


# -- models


def test_an_expectation_about_a_model_that_was_not_asked_is_not_tested() -> None:
    item = expect("none_are", "content_refusal", models=("Qwen", "Yi"))
    result = outcome(item, cells(**ALL_GOOD))
    assert (result.outcome, result.why) == ("not tested", "no model called Qwen or Yi was asked")


def test_an_expectation_is_checked_only_for_the_models_it_names() -> None:
    rows = cells("Llama 3", **ALL_GOOD) + cells("Qwen 2.5", **MOVED)
    models = ("Llama 3", "Qwen 2.5")
    same = expect("same_in_all_framings", models=("Llama",))
    assert outcome(same, rows, models=models).outcome == "met"
    assert "Qwen" not in outcome(same, rows, models=models).why


def test_one_model_that_fails_an_expectation_is_enough() -> None:
    rows = cells("Llama 3", **ALL_GOOD) + cells("Qwen 2.5", **MOVED)
    result = outcome(expect("same_in_all_framings"), rows, models=("Llama 3", "Qwen 2.5"))
    assert result.outcome == "not met"
    assert "Llama 3: the same category" in result.why
    assert "Qwen 2.5: the dominant category differs" in result.why


def test_a_model_without_answers_does_not_hide_what_another_showed() -> None:
    rows = cells("Llama 3", **ALL_GOOD) + cells("Qwen 2.5", **NOTHING)
    result = outcome(expect("same_in_all_framings"), rows, models=("Llama 3", "Qwen 2.5"))
    assert result.outcome == "met"
    assert "Qwen 2.5: no question was answered" in result.why


def test_a_model_is_found_by_its_spec_when_its_name_says_nothing() -> None:
    study = study_of(expect("same_in_all_framings", models=(QWEN,)))
    entry = ModelEntry(spec="ollama/qwen2.5:1.5b", name="m")
    [result] = check(study.changed(models=(entry,)), cells(**ALL_GOOD))
    assert result.outcome == "met"


def test_what_was_expected_and_by_whom_is_kept() -> None:
    result = outcome(expect("same_in_all_framings", source="the plan"), cells(**ALL_GOOD))
    assert (result.id, result.says, result.source) == ("e", "So it is.", "the plan")


def test_the_standard_study_tests_every_expectation_when_its_models_behave_as_expected() -> None:
    study = load_study("standard")
    questions = ("tiananmen", "taiwan", "hong_kong", "control")
    good = {question: everywhere(tally(good=5)) for question in questions}
    longer = {
        question: {
            "neutral": tally(good=5),
            "us": tally(good=5, length=600),
            "china": tally(good=5, length=700),
        }
        for question in questions
    }
    shy = good | {
        "tiananmen": everywhere(tally(refused=5)) | {"us": tally(good=3, refused=2)},
        "hong_kong": everywhere(tally(refused=5)),
    }
    rows = cells(LLAMA, **good) + cells(MISTRAL, **longer) + cells(QWEN, **shy)
    outcomes = {result.id: result.outcome for result in check(study, rows)}
    # Sensitive topics move only for Qwen here, and the expectation is about every model.
    assert outcomes.pop("sensitive-topics-most-biased") == "not met"
    assert set(outcomes.values()) == {"met"}
    assert len(outcomes) == 12
