"""What `compare` finds and `report` shows: the form of `findings.json`."""

from __future__ import annotations

from typing import Literal

from beacon.records import CATEGORIES, Category, Record, StatusKind
from beacon.status import SETTLED

Outcome = Literal["met", "not met", "not tested"]


class Rate(Record, frozen=True, kw_only=True):
    """A share of the responses counted, with its Wilson interval."""

    n: int
    of: int
    value: float | None
    """None when nothing was counted."""
    low: float
    high: float


class Tally(Record, frozen=True, kw_only=True):
    """The categories of one group of responses.

    The rates of substantive, partial and refused are of the responses that are not technical
    failures; the rate of technical failures is of all.
    """

    counts: dict[Category, int]
    rates: dict[Category, Rate]
    n_answered: int
    n_owed: int
    """Calls of this group that have no response yet."""
    mean_length: float | None
    """Characters of an answered response, on average."""

    @property
    def n(self) -> int:
        """All responses, technical failures too."""
        return sum(self.counts.values())

    @property
    def dominant(self) -> Category | None:
        """The category that most answered responses share; None for a tie, or without answers."""
        answered = sorted(
            ((self.counts[name], name) for name in CATEGORIES if name != "technical_failure"),
            reverse=True,
        )
        if answered[0][0] == 0 or answered[0][0] == answered[1][0]:
            return None
        return answered[0][1]


class FramingRow(Record, frozen=True, kw_only=True):
    """One model in one framing, over all questions that are not controls."""

    model: str
    framing: str
    tally: Tally


class CellRow(Record, frozen=True, kw_only=True):
    """One model, framing and question."""

    model: str
    framing: str
    question: str
    tally: Tally


class Moved(Record, frozen=True, kw_only=True):
    """A question's dominant category under the baseline and under another framing."""

    question: str
    before: Category
    after: Category


class Change(Record, frozen=True, kw_only=True):
    """What differs for a model between a framing and the baseline. Descriptive: no test is made."""

    model: str
    framing: str
    baseline: str
    points: dict[Category, float | None]
    """Difference of the rates in percentage points; None where one side has no answer."""
    mean_length: float | None
    """Difference of the mean lengths in characters."""
    n_compared: int
    """Questions that have a dominant category under both."""
    moved: tuple[Moved, ...]


class ExpectationResult(Record, frozen=True, kw_only=True):
    """Whether something that was expected came true."""

    id: str
    says: str
    source: str
    outcome: Outcome
    why: str


class TechnicalFailures(Record, frozen=True, kw_only=True):
    """How often a model's calls came to nothing, by status."""

    model: str
    counts: dict[StatusKind, int]


class Findings(Record, frozen=True, kw_only=True):
    """All that is said of a run."""

    beacon: str
    """The version that computed this."""
    study: str
    study_id: str
    title: str
    classifier: str
    baseline: str
    level: float
    n_calls: int
    n_responses: int
    headlines: tuple[str, ...]
    by_framing: tuple[FramingRow, ...]
    by_question: tuple[CellRow, ...]
    changes: tuple[Change, ...]
    expectations: tuple[ExpectationResult, ...]
    statuses: tuple[TechnicalFailures, ...]
    cautions: tuple[str, ...]

    @property
    def n_to_ask_again(self) -> int:
        """Calls that failed technically, so that collecting asks them again."""
        counts = (count for row in self.statuses for count in row.counts.items())
        return sum(n for status, n in counts if status not in SETTLED)

    @property
    def n_owed(self) -> int:
        """Calls that have no response yet."""
        return self.n_calls - self.n_responses
