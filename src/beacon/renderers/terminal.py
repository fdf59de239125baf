"""Findings as tables in a terminal. They make sense without colour."""

from __future__ import annotations

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from beacon.findings import Findings, Rate
from beacon.plan import Plan
from beacon.records import Category
from beacon.renderers.html import MARKS, NAMES, ORDER, points

STYLES: dict[Category, str] = {
    "substantive_response": "cyan",
    "partial_response": "yellow",
    "content_refusal": "red",
    "technical_failure": "bright_black",
}


def findings_table(findings: Findings) -> Group:
    """Rates by model and framing, what changed, and what was expected."""
    parts: list[Table | Text] = [_rates(findings)]
    if findings.changes:
        parts.append(_changes(findings))
    if any(item.outcome != "not tested" for item in findings.expectations):
        parts.append(_expectations(findings))
    elif findings.expectations:
        told = f"None of {len(findings.expectations)} expectations was tested; the report says why."
        parts.append(Text(told))
    parts.extend(Text(f"! {caution}", style="yellow") for caution in findings.cautions)
    return Group(*parts)


def _rates(findings: Findings) -> Table:
    table = _table(
        f"{findings.title} · {findings.n_responses} of {findings.n_calls} responses · "
        f"labelled by {findings.classifier}"
    )
    table.caption = (
        "Share of the answered (technical failure: of all), 95 % Wilson interval, count. "
        "Controls are left out."
    )
    table.caption_justify = "left"
    table.add_column("model")
    table.add_column("framing")
    for category in ORDER:
        table.add_column(f"{MARKS[category]} {NAMES[category]}", style=STYLES[category])
    for row in findings.by_framing:
        table.add_row(
            Text(row.model),
            row.framing,
            *(_rate(row.tally.rates[category]) for category in ORDER),
        )
    return table


def _rate(rate: Rate) -> str:
    if rate.value is None:
        return "–"  # noqa: RUF001
    low, high = 100 * rate.low, 100 * rate.high
    return f"{100 * rate.value:.0f} %  {low:.0f}–{high:.0f}  ({rate.n}/{rate.of})"  # noqa: RUF001


def _changes(findings: Findings) -> Table:
    table = _table(f"Against {findings.baseline}, in points")
    table.add_column("model")
    table.add_column("framing")
    for category in ORDER:
        table.add_column(NAMES[category], justify="right")
    table.add_column("length", justify="right")
    table.add_column("questions that moved")
    for change in findings.changes:
        table.add_row(
            Text(change.model),
            change.framing,
            *(points(change.points[category]) for category in ORDER),
            points(change.mean_length),
            ", ".join(moved.question for moved in change.moved)
            or ("none" if change.n_compared else "–"),  # noqa: RUF001
        )
    return table


def _expectations(findings: Findings) -> Table:
    untested = [item for item in findings.expectations if item.outcome == "not tested"]
    table = _table("Expected")
    if untested:
        table.caption = f"{len(untested)} more were not tested; the report says of each why."
        table.caption_justify = "left"
    table.add_column("outcome", no_wrap=True)
    table.add_column("expectation")
    table.add_column("because")
    for item in findings.expectations:
        if item.outcome != "not tested":
            table.add_row(item.outcome, Text(item.says), Text(item.why))
    return table


def _table(title: str) -> Table:
    # As `Text`, because a title may hold brackets, which are markup in a plain string.
    return Table(title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD)


def plan_table(plan: Plan) -> Table:
    """What a study will take."""
    table = _table(
        f"{plan.study}: {plan.n_calls:,} calls = {plan.n_questions} questions x "
        f"{plan.n_framings} framings x {len(plan.models)} models x {plan.repeats} repeats"
    )
    table.caption = (
        f"Nothing was sent. Tokens are estimated from lengths; time assumes "
        f"{plan.tokens_per_second:g} tokens a second for each connection."
    )
    table.caption_justify = "left"
    for name in ("model", "calls", "tokens in", "tokens out", "at most", "time", "cost", "note"):
        table.add_column(name, justify="left" if name in ("model", "note") else "right")
    for model in plan.models:
        most = model.most_completion_tokens
        table.add_row(
            Text(model.model),
            f"{model.n_calls:,}",
            f"{model.prompt_tokens:,}",
            f"{model.completion_tokens:,}",
            "no limit" if most is None else f"{most:,}",
            duration(model.seconds),
            _money(model.cost, model.currency),
            f"not sent: {', '.join(model.left_out)}" if model.left_out else "",
        )
    return table


def _money(cost: float | None, currency: str | None) -> str:
    return "no price given" if cost is None else f"{cost:,.2f} {currency}"


def duration(seconds: float) -> str:
    """A time to wait, in the unit that suits it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def print_findings(console: Console, findings: Findings) -> None:
    """Print the tables."""
    console.print(findings_table(findings))
