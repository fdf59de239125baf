"""Tables in a terminal: the numbers are those of the findings, and brackets are text."""

from __future__ import annotations

from io import StringIO

import msgspec
import pytest
from rich.console import Console, RenderableType

from beacon.plan import plan
from beacon.renderers.terminal import duration, findings_table, plan_table
from beacon.study import ModelEntry, Price
from tests.test_compare import HELD, STUDY, findings_of


def shown(table: RenderableType) -> str:
    out = StringIO()
    Console(file=out, width=220, color_system=None).print(table)
    return out.getvalue()


def lines_with(text: str, *words: str) -> list[str]:
    return [line for line in text.splitlines() if all(word in line for word in words)]


def test_rates_are_shown_with_their_intervals_and_counts() -> None:
    # 5 of 7 is 71 %, and by Wilson 36 to 92 %; 1 of 8 is 12.5 %, 2 to 47 %.
    text = shown(findings_table(findings_of(*HELD)))
    neutral, *_ = lines_with(text, "m ", "neutral")
    assert "71 %  36–92  (5/7)" in neutral
    assert "12 %  2–47  (1/8)" in neutral


def test_what_was_not_counted_is_a_dash() -> None:
    [us] = lines_with(shown(findings_table(findings_of(*HELD))), " us ", "–")[:1]
    assert us.count("–") == 4
    assert "%" not in us


def test_changes_are_shown_in_signed_points() -> None:
    text = shown(findings_table(findings_of(*HELD)))
    [china] = lines_with(text, "china", "square")
    # Substantive 4/7 - 5/7, partial 0 - 1/7, refused 3/7 - 1/7, failed the same, length -200/7.
    assert china.split()[2:7] == ["−14", "−14", "+29", "0", "−29"]


def test_how_much_is_in_is_told() -> None:
    assert "24 of 36 responses" in shown(findings_table(findings_of(*HELD)))


@pytest.mark.parametrize("title", ["[draft] bias", "bias [/b]", "[red]bias[/red]", "a [2024] b"])
def test_brackets_in_a_title_are_text(title: str) -> None:
    study = msgspec.structs.replace(STUDY, title=title)
    assert title in shown(findings_table(findings_of(*HELD, study=study)))


def test_brackets_in_a_models_name_are_text() -> None:
    study = STUDY.changed(
        models=(ModelEntry(spec="smollm2", name="[b]m[/x]", caution="Mind [/this]."),)
    )
    assert "[b]m[/x]" in shown(plan_table(plan(study)))
    text = shown(findings_table(findings_of(study=study)))
    assert "[b]m[/x]" in text
    assert "Mind [/this]." in text


def test_a_plan_shows_calls_tokens_time_and_cost() -> None:
    study = STUDY.changed(
        models=(ModelEntry(spec="anthropic/x", price=Price(input=1_000, output=1_000)),)
    )
    study = msgspec.structs.replace(study, sampling=msgspec.structs.replace(study.sampling, seed=1))
    text = shown(plan_table(plan(study, tokens_per_second=350)))
    assert "small: 36 calls = 3 questions x 3 framings x 1 models x 4 repeats" in text
    # 36 answers of 350 tokens on 16 connections at 350 tokens a second.
    [row] = lines_with(text, "anthropic/x")
    assert "12,600" in row
    assert "2 s" in row
    assert "no limit" in row
    assert "12.89 USD" in row  # 12,600 out and 288 in, at a tenth of a cent each
    assert "not sent: seed" in row


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (89.4, "89 s"),
        (90, "2 min"),
        (600, "10 min"),
        (5_399, "90 min"),
        (5_400, "1.5 h"),
        (86_400, "24.0 h"),
    ],
)
def test_a_time_is_told_in_the_unit_that_suits_it(seconds: float, words: str) -> None:
    assert duration(seconds) == words
