"""One self-contained page: no network, no script, every text escaped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from beacon.findings import CellRow, Findings, Tally
from beacon.records import CATEGORIES, Category, Label, Stored
from beacon.run_folder import Run
from beacon.study import Question, Study

MOST_CHARACTERS: Final = 12_000_000
"""Characters of model text that a report holds; what does not fit stays in the store, and the page
says how much that is."""

NAMES: Final[dict[Category, str]] = {
    "substantive_response": "substantive",
    "partial_response": "partial",
    "content_refusal": "refusal",
    "technical_failure": "technical failure",
}
MARKS: Final[dict[Category, str]] = {
    "substantive_response": "●",
    "partial_response": "◐",
    "content_refusal": "✕",
    "technical_failure": "▲",
}
"""A shape for each category, so that nothing depends on colour."""
ORDER: Final[tuple[Category, ...]] = (
    "substantive_response",
    "partial_response",
    "content_refusal",
    "technical_failure",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A response as the page shows it."""

    stored: Stored
    label: Label | None
    before: str
    marked: str
    """The span that the label's evidence points at."""
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCell:
    """A cell of the heat map with its responses."""

    row: CellRow
    anchor: str
    shown: list[Shown]
    n_left_out: int


def render(findings: Findings, study: Study, run: Run, *, made_at: datetime) -> str:
    """The report of a run as HTML."""
    assert set(ORDER) == set(CATEGORIES)
    environment = Environment(
        loader=PackageLoader("beacon", "renderers/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "points": points, "words": words}
    cells = _cells(findings, run.responses(findings.classifier))
    return environment.get_template("report.html").render(
        findings=findings,
        study=study,
        questions={question.id: question for question in study.questions},
        framings={framing.id: framing for framing in study.framings},
        cells=cells,
        n_left_out=sum(cell.n_left_out for cell in cells.values()),
        order=ORDER,
        names=NAMES,
        marks=MARKS,
        mix=mix,
        title_of=title_of,
        made_at=f"{made_at:%Y-%m-%d %H:%M} UTC",
        usage=run.store.usage(),
        created_at=run.store.created_at(),
        folder=Path(run.folder).name,
    )


def _cells(
    findings: Findings, responses: Iterable[tuple[Stored, Label | None]]
) -> dict[tuple[str, str, str], ShownCell]:
    shown: dict[tuple[str, str, str], list[Shown]] = defaultdict(list)
    left_out: dict[tuple[str, str, str], int] = defaultdict(int)
    n_characters = 0
    for stored, label in responses:
        key = (stored.model, stored.framing_id, stored.question_id)
        n_characters += len(stored.text)
        if n_characters > MOST_CHARACTERS:
            left_out[key] += 1
        else:
            shown[key].append(_show(stored, label))
    return {
        (row.model, row.framing, row.question): ShownCell(
            row=row,
            anchor=f"cell-{index}",
            shown=sorted(
                shown[row.model, row.framing, row.question], key=lambda item: item.stored.repeat
            ),
            n_left_out=left_out[row.model, row.framing, row.question],
        )
        for index, row in enumerate(findings.by_question)
    }


def _show(stored: Stored, label: Label | None) -> Shown:
    text = stored.text
    spans = [item for item in (label.evidence if label else ()) if item.start is not None]
    if not spans or spans[0].start is None or spans[0].end is None:
        return Shown(stored=stored, label=label, before=text, marked="", after="")
    start, end = spans[0].start, spans[0].end
    return Shown(
        stored=stored,
        label=label,
        before=text[:start],
        marked=text[start:end],
        after=text[end:],
    )


def mix(tally: Tally) -> list[tuple[Category, int, float]]:
    """The categories that occur in a tally: which, how many, what share of all in percent."""
    return [
        (category, tally.counts[category], 100 * tally.counts[category] / tally.n)
        for category in ORDER
        if tally.counts[category]
    ]


def title_of(question: Question) -> str:
    """What a heading calls a question."""
    return question.topic or question.id


def percent(value: float | None) -> str:
    """A share in percent; a dash where there is none."""
    return "–" if value is None else f"{100 * value:.0f} %"  # noqa: RUF001


def points(value: float | None) -> str:
    """A signed difference; a dash where there is none."""
    if value is None:
        return "–"  # noqa: RUF001
    return "0" if abs(value) < 0.5 else f"{value:+.0f}".replace("-", "−")  # noqa: RUF001


def words(value: Any) -> str:
    """A name from the code as words."""
    return "none" if value is None else str(value).replace("_", " ")
