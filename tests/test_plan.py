"""What a study will take: counts, order, tokens and money, worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beacon.plan import calls, estimate_tokens, plan
from beacon.records import Call, Sampling
from beacon.study import Framing, ModelEntry, Price, Question, Study
from beacon.study_file import load_study

STUDY = Study(
    beacon=1,
    name="small",
    framings=(
        Framing(id="none", system=""),
        Framing(id="plain", system="You are a helpful assistant."),
    ),
    questions=(
        Question(id="square", text="What happened at the square?"),
        Question(id="island", text="台湾的现状？"),
        Question(id="control", text="Who are you?", control=True),
    ),
    models=(ModelEntry(spec="openai/gpt-4o"),),
    sampling=Sampling(temperature=0.5, seed=7, max_tokens=100),
    repeats=2,
)


def with_model(**fields: Any) -> Study:
    return STUDY.changed(models=(ModelEntry(**{"spec": "openai/gpt-4o"} | fields),))


# -- calls


def test_controls_come_first_and_one_repeat_after_another() -> None:
    asked = [
        (call.repeat, call.question_id, call.framing_id) for call in calls(STUDY, STUDY.models[0])
    ]
    assert asked == [
        (0, "control", "none"),
        (0, "control", "plain"),
        (0, "square", "none"),
        (0, "square", "plain"),
        (0, "island", "none"),
        (0, "island", "plain"),
        (1, "control", "none"),
        (1, "control", "plain"),
        (1, "square", "none"),
        (1, "square", "plain"),
        (1, "island", "none"),
        (1, "island", "plain"),
    ]


def test_a_call_holds_all_that_is_asked() -> None:
    call = next(iter(calls(STUDY, ModelEntry(spec="ollama/x", name="X"))))
    assert call == Call(
        question_id="control",
        framing_id="none",
        model="X",
        spec="ollama/x",
        system="",
        prompt="Who are you?",
        sampling=Sampling(temperature=0.5, seed=7, max_tokens=100),
        repeat=0,
    )


def test_a_run_that_is_stopped_early_is_balanced_over_framings() -> None:
    study = load_study("standard")
    framings = [call.framing_id for call in islice(calls(study, study.models[0]), 12)]
    assert {framing: framings.count(framing) for framing in framings} == {
        "neutral": 4,
        "us": 4,
        "china": 4,
    }


def test_each_repeat_has_a_seed_of_its_own() -> None:
    seeds = {(call.repeat, call.sampling.seed) for call in calls(STUDY, STUDY.models[0])}
    assert seeds == {(0, 7), (1, 8)}


def test_without_a_seed_repeats_differ_in_nothing_but_their_number() -> None:
    study = msgspec.structs.replace(STUDY, sampling=Sampling())
    made = list(calls(study, study.models[0]))
    assert {call.sampling for call in made} == {Sampling()}
    assert len({call.id for call in made}) == len(made) == 12


def test_a_models_own_sampling_outranks_the_studys() -> None:
    entry = ModelEntry(spec="ollama/x", sampling=Sampling(temperature=0.0, seed=100))
    made = list(calls(STUDY, entry))
    assert {call.sampling.temperature for call in made} == {0.0}
    assert {call.sampling.max_tokens for call in made} == {100}
    assert {call.sampling.seed for call in made} == {100, 101}


def test_the_first_calls_of_an_endless_study_come_without_the_rest() -> None:
    study = STUDY.changed(repeats=10**18)
    first = list(islice(calls(study, study.models[0]), 7))
    assert [call.repeat for call in first] == [0] * 6 + [1]
    assert plan(study).n_calls == 6 * 10**18


@pytest.mark.parametrize("repeats", [1, 2, 5])
def test_as_many_calls_are_made_as_the_plan_counts(repeats: int) -> None:
    study = load_study("standard").changed(repeats=repeats)
    made = [call for entry in study.models for call in calls(study, entry)]
    assert len(made) == len({call.id for call in made}) == study.n_calls == 36 * repeats
    assert plan(study).n_calls == study.n_calls
    assert sum(model.n_calls for model in plan(study).models) == study.n_calls


# -- ids

CALL = Call(
    question_id="tiananmen",
    framing_id="china",
    model="Qwen 2.5-1.5B",
    spec="ollama/qwen2.5:1.5b",
    system="You are a helpful assistant based in China.",
    prompt="What happened at Tiananmen Square on June 4, 1989?",
    sampling=Sampling(temperature=0.7, max_tokens=1024, seed=1989),
    repeat=0,
)


def test_an_id_is_the_same_on_every_machine_and_in_every_version() -> None:
    # Should this ever have to change, so must the tag: stored runs are resumed by these ids.
    assert CALL.id == "c1-dd023898db1c9183fd2e82cf"


def test_the_standard_studys_ids_are_those_of_its_content() -> None:
    study = load_study("standard")
    assert CALL in list(islice(calls(study, study.models[2]), 12))


@dataclass(frozen=True)
class Change:
    id: str
    fields: dict[str, Any]


CHANGES = [
    Change("question_id", {"question_id": "taiwan"}),
    Change("body", {"body": {"provider": {"order": ["DeepInfra"]}}}),
    Change("framing_id", {"framing_id": "us"}),
    Change("model", {"model": "Qwen"}),
    Change("spec", {"spec": "vllm/qwen2.5:1.5b"}),
    Change("system", {"system": "You are a helpful assistant based in the US."}),
    Change("no_system", {"system": ""}),
    Change("prompt", {"prompt": "What happened?"}),
    Change("white_space", {"prompt": CALL.prompt + " "}),
    Change("repeat", {"repeat": 1}),
    Change("temperature", {"sampling": Sampling(temperature=0.0, max_tokens=1024, seed=1989)}),
    Change("max_tokens", {"sampling": Sampling(temperature=0.7, max_tokens=2048, seed=1989)}),
    Change("seed", {"sampling": Sampling(temperature=0.7, max_tokens=1024, seed=1990)}),
    Change("no_seed", {"sampling": Sampling(temperature=0.7, max_tokens=1024)}),
    Change("zero_seed", {"sampling": Sampling(temperature=0.7, max_tokens=1024, seed=0)}),
    Change("top_p", {"sampling": Sampling(temperature=0.7, max_tokens=1024, seed=1989, top_p=1.0)}),
    Change(
        "stop", {"sampling": Sampling(temperature=0.7, max_tokens=1024, seed=1989, stop=("\n",))}
    ),
    Change(
        "logprobs", {"sampling": Sampling(temperature=0.7, max_tokens=1024, seed=1989, logprobs=0)}
    ),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.id)
def test_a_call_that_asks_anything_else_has_another_id(change: Change) -> None:
    assert msgspec.structs.replace(CALL, **change.fields).id != CALL.id


def test_no_two_of_these_changes_share_an_id() -> None:
    ids = {msgspec.structs.replace(CALL, **change.fields).id for change in CHANGES}
    assert len(ids) == len(CHANGES)


def test_every_field_of_a_call_is_changed_above() -> None:
    changed = {name for change in CHANGES for name in change.fields}
    assert changed == {field.name for field in msgspec.structs.fields(Call)}


# -- tokens, time and money


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 0),
        ("abcd", 1),
        ("Who are you?", 3),
        ("You are a helpful assistant.", 7),
        ("台湾的现状？", 6),
        ("abcd台", 2),
        ("😀", 1),
    ],
)
def test_tokens_are_a_quarter_of_the_letters_and_all_of_other_signs(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


@given(st.text())
def test_no_text_has_more_tokens_than_characters(text: str) -> None:
    assert 0 <= estimate_tokens(text) <= len(text)


def test_tokens_are_added_up_over_every_call() -> None:
    # Questions are 7, 6 and 3 tokens, framings 0 and 7, and 8 stand around each of 6 calls:
    # 2 * (7 + 6 + 3) + 3 * (0 + 7) + 6 * 8 = 101, twice.
    [model] = plan(STUDY).models
    assert model.prompt_tokens == 202
    assert model.completion_tokens == model.most_completion_tokens == 12 * 100


def test_a_typical_answer_is_shorter_than_a_generous_limit() -> None:
    study = msgspec.structs.replace(STUDY, sampling=Sampling(max_tokens=4_096))
    [model] = plan(study).models
    assert model.completion_tokens == 12 * 350
    assert model.most_completion_tokens == 12 * 4_096


def test_without_a_limit_there_is_no_most() -> None:
    study = msgspec.structs.replace(with_model(price=Price(input=1, output=1)), sampling=Sampling())
    [model] = plan(study).models
    assert model.completion_tokens == 12 * 350
    assert model.most_completion_tokens is None
    assert model.most_cost is None
    assert model.cost is not None


def test_cost_is_tokens_times_price() -> None:
    study = msgspec.structs.replace(
        with_model(price=Price(input=2.5, output=10, currency="EUR")),
        sampling=Sampling(max_tokens=1_000),
    )
    [model] = plan(study).models
    # 202 in at 2.50 a million; 12 * 350 out, or at most 12 * 1000, at 10 a million.
    assert model.cost == pytest.approx(0.000505 + 0.042)
    assert model.most_cost == pytest.approx(0.000505 + 0.12)
    assert model.currency == "EUR"


def test_what_costs_nothing_is_not_what_has_no_price() -> None:
    [free] = plan(with_model(price=Price(input=0, output=0))).models
    assert (free.cost, free.most_cost, free.currency) == (0.0, 0.0, "USD")
    [unknown] = plan(with_model()).models
    assert (unknown.cost, unknown.most_cost, unknown.currency) == (None, None, None)


@pytest.mark.parametrize(
    ("fields", "at_once"),
    [
        ({"spec": "openai/x"}, 12),
        ({"spec": "openai/x", "limit": 4}, 4),
        ({"spec": "smollm2"}, 1),
        ({"spec": "gguf/x.gguf"}, 1),
        ({"spec": "hf/x"}, 1),
        ({"spec": "smollm2", "limit": 2}, 2),
        ({"spec": "openai/x", "limit": 100}, 12),
    ],
    ids=str,
)
def test_time_is_tokens_over_speed_shared_by_what_runs_at_once(
    fields: dict[str, Any], at_once: int
) -> None:
    [model] = plan(with_model(**fields), tokens_per_second=10).models
    assert model.seconds == pytest.approx(1_200 / 10 / at_once)


def test_no_more_than_sixteen_connections_are_assumed() -> None:
    [model] = plan(STUDY.changed(repeats=100), tokens_per_second=10).models
    assert model.seconds == pytest.approx(600 * 100 / 10 / 16)


def test_models_are_asked_side_by_side() -> None:
    study = STUDY.changed(
        models=(ModelEntry(spec="smollm2"), ModelEntry(spec="ollama/x", limit=12))
    )
    planned = plan(study, tokens_per_second=10)
    assert [model.seconds for model in planned.models] == pytest.approx([120, 10])
    assert planned.seconds == pytest.approx(120)
    assert planned.n_calls == 24


# -- what will not be sent

ALL = Sampling(temperature=1.0, top_p=0.9, max_tokens=9, seed=1, stop=("x",), logprobs=5)


@pytest.mark.parametrize(
    ("spec", "left_out"),
    [
        ("anthropic/x", ("logprobs", "seed")),
        ("deepseek/x", ("seed",)),
        ("mistral/x", ("logprobs",)),
        ("openai/x", ()),
        ("http://host/v1#x", ()),
        ("smollm2", ()),
    ],
)
def test_what_a_provider_does_not_take_is_listed(spec: str, left_out: tuple[str, ...]) -> None:
    study = msgspec.structs.replace(with_model(spec=spec), sampling=ALL)
    [model] = plan(study).models
    assert model.left_out == left_out


def test_what_was_not_asked_for_is_not_listed_as_left_out() -> None:
    study = msgspec.structs.replace(with_model(spec="anthropic/x"), sampling=Sampling())
    [model] = plan(study).models
    assert model.left_out == ()


def test_a_seed_of_zero_is_asked_for() -> None:
    study = msgspec.structs.replace(with_model(spec="deepseek/x"), sampling=Sampling(seed=0))
    [model] = plan(study).models
    assert model.left_out == ("seed",)


def test_a_plan_says_what_it_is_of() -> None:
    planned = plan(with_model(spec="ollama/x", name="X"))
    assert (planned.study, planned.n_questions, planned.n_framings, planned.repeats) == (
        "small",
        3,
        2,
        2,
    )
    [model] = planned.models
    assert (model.model, model.spec, model.n_calls) == ("X", "ollama/x", 12)
