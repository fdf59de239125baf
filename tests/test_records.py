"""The nouns: text that can be stored, settings over settings, identity from content."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beacon.ids import content_id
from beacon.records import CATEGORIES, Evidence, Failure, Label, Reply, Response, Sampling, storable
from beacon.study import ModelEntry
from tests.conftest import small_study


@dataclass(frozen=True)
class Case:
    id: str
    text: str
    stored: str


STORABLE = [
    Case("empty", "", ""),
    Case("plain", "Hello.", "Hello."),
    Case("other_scripts", "天安门 Ω 😀", "天安门 Ω 😀"),
    Case("line_separators", "a\u2028b\u2029c\x85d\x00e", "a\u2028b\u2029c\x85d\x00e"),
    Case("byte_order_mark", "\ufeffa\ufeff", "\ufeffa\ufeff"),
    Case("byte_order_mark_and_surrogate", "\ufeff\ud800\ufeff", "\ufeff\ufffd\ufeff"),
    Case("lone_high", "a\ud800b", "a\ufffdb"),
    Case("lone_low", "a\udfffb", "a\ufffdb"),
    Case("lone_high_at_the_end", "a\ud83d", "a\ufffd"),
    Case("lone_low_at_the_start", "\ude00a", "\ufffda"),
    Case("two_highs", "\ud800\ud800", "\ufffd\ufffd"),
    Case("wrong_way_round", "\ude00\ud83d", "\ufffd\ufffd"),
    Case("a_pair_is_the_character_it_means", "\ud83d\ude00", "😀"),
    Case("high_before_a_pair", "\ud83d\ud83d\ude00", "\ufffd😀"),
    Case("beside_a_real_one", "😀\ud800😀", "😀\ufffd😀"),
]


@pytest.mark.parametrize("case", STORABLE, ids=lambda case: case.id)
def test_lone_surrogates_are_replaced_and_nothing_else_is(case: Case) -> None:
    assert storable(case.text) == case.stored


@given(st.text(st.characters()))
def test_any_text_can_be_stored_and_storing_again_changes_nothing(text: str) -> None:
    stored = storable(text)
    stored.encode()
    assert storable(stored) == stored
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert stored == text


# -- sampling

BASE = Sampling(temperature=0.7, top_p=0.9, max_tokens=64, seed=5, stop=("\n",), logprobs=3)


def test_what_is_left_open_is_taken_from_the_base() -> None:
    assert Sampling().over(BASE) == BASE
    assert Sampling(temperature=0.1).over(BASE) == msgspec.structs.replace(BASE, temperature=0.1)


def test_what_is_given_outranks_the_base() -> None:
    given = Sampling(temperature=1.0, top_p=0.5, max_tokens=1, seed=9, stop=("x",), logprobs=1)
    assert given.over(BASE) == given


def test_zero_is_given_and_not_left_open() -> None:
    zeros = Sampling(temperature=0.0, seed=0, logprobs=0)
    merged = zeros.over(BASE)
    assert (merged.temperature, merged.seed, merged.logprobs) == (0.0, 0, 0)
    assert merged.max_tokens == 64


def test_nothing_over_nothing_is_nothing() -> None:
    assert Sampling().over(Sampling()) == Sampling()
    assert msgspec.json.encode(Sampling()) == b"{}"


# -- identity


def test_an_id_does_not_depend_on_the_order_of_keys() -> None:
    assert content_id("t1", {"a": 1, "b": {"c": 2, "d": 3}}) == content_id(
        "t1", {"b": {"d": 3, "c": 2}, "a": 1}
    )


def test_an_id_is_the_hash_of_canonical_json() -> None:
    content = {"b": [1, "天"], "a": None}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = blake2b(canonical.encode(), digest_size=12).hexdigest()
    assert content_id("t1", content) == f"t1-{digest}"


def test_the_tag_is_part_of_the_id() -> None:
    assert content_id("a1", {}) != content_id("b1", {})
    assert content_id("a1", {}).removeprefix("a1") == content_id("b1", {}).removeprefix("b1")


# -- labels and responses


@pytest.mark.parametrize("category", CATEGORIES)
def test_a_label_is_true_of_its_category_alone(category: str) -> None:
    label = Label(
        category=category,
        layer="model",
        length=1,
        evidence=(Evidence(rule="r", detail="d"), Evidence(rule="s", detail="d")),
        classifier="c@1",
    )
    assert {name for name in CATEGORIES if getattr(label, name)} == {category}
    assert label.rule == "r"


@pytest.mark.parametrize(
    "response",
    [Reply(text="a\u2028"), Failure(reason="http", message="no", http_status=500)],
    ids=["reply", "failure"],
)
def test_a_response_is_read_back_as_what_it_was(response: Response) -> None:
    assert msgspec.json.decode(msgspec.json.encode(response), type=Response) == response


def test_a_record_refuses_fields_that_it_does_not_know() -> None:
    with pytest.raises(msgspec.ValidationError, match="temprature"):
        msgspec.json.decode(b'{"temprature": 1}', type=Sampling)


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        BASE.seed = 6  # type: ignore[misc]


# -- studies that grow

SMALL = small_study("smollm2", repeats=2)
OTHER = ModelEntry(spec="ollama/qwen2.5:1.5b")


@dataclass(frozen=True)
class Growth:
    id: str
    newer: object
    grew: bool


GROWTH = [
    Growth("the_same", SMALL, True),
    Growth("more_repeats", SMALL.changed(repeats=3), True),
    Growth("fewer_repeats", SMALL.changed(repeats=1), False),
    Growth("another_model", SMALL.changed(models=(*SMALL.models, OTHER)), True),
    Growth("another_model_first", SMALL.changed(models=(OTHER, *SMALL.models)), True),
    Growth("a_model_less", SMALL.changed(models=(OTHER,)), False),
    Growth("another_limit", SMALL.changed(models=(ModelEntry(spec="smollm2", limit=2),)), True),
    Growth("a_question_less", msgspec.structs.replace(SMALL, questions=SMALL.questions[1:]), False),
    Growth("other_sampling", msgspec.structs.replace(SMALL, sampling=Sampling()), False),
    Growth(
        "another_body",
        SMALL.changed(models=(ModelEntry(spec="smollm2", body={"top_k": 1}),)),
        False,
    ),
    Growth("another_title", msgspec.structs.replace(SMALL, title="x"), True),
]


@pytest.mark.parametrize("case", GROWTH, ids=lambda case: case.id)
def test_a_run_can_ask_more_and_nothing_else(case: Growth) -> None:
    assert case.newer.grew_from(SMALL) is case.grew  # type: ignore[attr-defined]


def test_a_studys_id_changes_with_anything_in_it() -> None:
    ids = {case.newer.id for case in GROWTH}  # type: ignore[attr-defined]
    assert len(ids) == len(GROWTH)
