"""The classify stage over a run: status, text, control, in that order."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from beacon.classify import classify, load_classifier
from beacon.errors import UsageError
from beacon.pipeline import classify_run, collect_run, compare_run
from beacon.store import Store
from tests.conftest import small_study

LONG = "An answer with names, dates and places. " * 8
SHY = """
replies:
  - when: {{question: Who are you, system: China}}
    text: {control!r}
  - when: {{question: Who are you}}
    text: I am a test.
  - when: {{question: square, system: China}}
    text: I can’t help you with that.
  - text: {long!r}
"""


def run_shy(folder: Path, control: str) -> Store:
    script = folder / "shy.yaml"
    script.write_text(SHY.format(control=control, long=LONG), encoding="utf-8")
    store = Store.create(
        folder / "run", small_study(f"scripted/{script}"), now=datetime.now(UTC), version="t"
    )
    collect_run(store)
    return store


def labels(store: Store) -> dict[tuple[str, str, int], tuple[str, str]]:
    instrument = store.instrument_id("classifier", load_classifier("reference").name)
    return {
        (stored.framing_id, stored.question_id, stored.repeat): (label.category, label.rule)
        for stored, label in store.labelled(instrument)
        if label is not None
    }


def test_a_wrong_prompt_phrase_is_a_refusal_when_the_control_was_answered(tmp_path: Path) -> None:
    store = run_shy(tmp_path, control="I am a test model made for this.")
    assert labels(store)["china", "square", 0] == ("content_refusal", "control_answered")
    instrument = store.instrument_id("classifier", "reference@1")
    evidence = store.by_rule(instrument, ["control_answered"])[0][1].evidence
    assert [item.rule for item in evidence] == ["control_answered", "wrong_prompt"]


@pytest.mark.parametrize(
    "control", ["I can't help you with that.", "HTTP 500: oh no", "Invalid request"]
)
def test_it_stays_a_technical_failure_when_the_control_failed_too(tmp_path, control) -> None:
    store = run_shy(tmp_path, control=control)
    classify_run(store)
    assert labels(store)["china", "square", 0] == ("technical_failure", "wrong_prompt")


def test_a_control_answered_later_turns_the_label_and_keeps_the_old_one(tmp_path: Path) -> None:
    store = run_shy(tmp_path, control="")
    classify_run(store)
    assert labels(store)["china", "square", 0][0] == "technical_failure"

    script = tmp_path / "shy.yaml"
    script.write_text(SHY.format(control="I am a test model.", long=LONG), encoding="utf-8")
    collect_run(store)
    classify_run(store)
    assert labels(store)["china", "square", 0] == ("content_refusal", "control_answered")


def test_classifying_twice_adds_nothing(tmp_path: Path) -> None:
    store = run_shy(tmp_path, control="I am a test model made for this.")
    classify_run(store)
    before = compare_run(store)
    assert classify_run(store) == 0
    assert compare_run(store) == before


def test_the_text_length_label_and_framing_of_every_response_are_stored(tmp_path: Path) -> None:
    """The response validation of the protocol: raw text, length, label, framing."""
    store = run_shy(tmp_path, control="I am a test model made for this.")
    classify_run(store)
    instrument = store.instrument_id("classifier", "reference@1")
    rows = list(store.labelled(instrument))
    assert len(rows) == 12
    for stored, label in rows:
        assert label is not None
        assert label.length == len(stored.text) > 0
        assert stored.framing_id in ("neutral", "china")


def test_the_streamed_labels_equal_those_made_in_one_go(tmp_path: Path) -> None:
    store = run_shy(tmp_path, control="I am a test model made for this.")
    classify_run(store)
    for stored, label in store.labelled(store.instrument_id("classifier", "reference@1")):
        alone = classify(stored.text, finish_reason="stop")
        assert label is not None
        if label.rule != "control_answered":
            assert alone == label


def test_an_unknown_classifier_is_named_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="Did you mean 'reference'"):
        classify("x", classifier="refrence")
