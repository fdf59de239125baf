"""How collecting goes, as it goes: a bar with counts by category on a terminal, else lines."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from beacon.records import Category, Label
from beacon.watch import Watch

SHORT: Final[dict[Category, str]] = {
    "substantive_response": "substantive",
    "partial_response": "partial",
    "content_refusal": "refused",
    "technical_failure": "failed",
}
SECONDS_BETWEEN_LINES: Final = 5.0


class _Counting(Watch):
    """Keeps the counts that both kinds of progress show."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._counts: Counter[str] = Counter()
        self._n_calls = 0
        self._n_done = 0

    def say(self, message: str) -> None:
        """Print it."""
        self._console.print(message, markup=False, soft_wrap=True)

    def started(self, n_calls: int, n_done: int) -> None:
        """Note how far the run is."""
        self._n_calls, self._n_done = n_calls, n_done
        if n_done:
            self.say(f"{n_done} of {n_calls} calls are answered already; asking the rest.")

    def stored(self, labels: Sequence[Label | None]) -> None:
        """Count a group."""
        for label in labels:
            self._counts["waiting for the control" if label is None else SHORT[label.category]] += 1
        self._n_done += len(labels)

    def stopping(self) -> None:
        """Say what stopping means."""
        self.say("Stopping: waiting for the calls in flight. Ctrl-C again ends at once.")

    def _told(self) -> str:
        shown = [f"{name} {self._counts[name]}" for name in SHORT.values() if self._counts[name]]
        waiting = self._counts["waiting for the control"]
        return " · ".join([*shown, f"waiting {waiting}"] if waiting else shown)


class TerminalProgress(_Counting):
    """A bar."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._bar = Progress(
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=console,
        )
        self._task: TaskID | None = None

    def say(self, message: str) -> None:
        """Print above the bar."""
        self._bar.console.print(message, markup=False, soft_wrap=True)

    def started(self, n_calls: int, n_done: int) -> None:
        """Show the bar."""
        super().started(n_calls, n_done)
        self._task = self._bar.add_task("", total=n_calls, completed=n_done)
        self._bar.start()

    def stored(self, labels: Sequence[Label | None]) -> None:
        """Move the bar."""
        super().stored(labels)
        assert self._task is not None
        self._bar.update(self._task, completed=self._n_done, description=self._told())

    def ended(self) -> None:
        """Leave the bar as it is."""
        self._bar.stop()


class LineProgress(_Counting):
    """A line every few seconds, for logs."""

    def __init__(self, console: Console, *, every: float = SECONDS_BETWEEN_LINES) -> None:
        super().__init__(console)
        self._every = every
        self._last = time.monotonic()

    def stored(self, labels: Sequence[Label | None]) -> None:
        """Print a line when it is time."""
        super().stored(labels)
        if time.monotonic() - self._last >= self._every:
            self._last = time.monotonic()
            self._print()

    def ended(self) -> None:
        """Print where it ended."""
        self._print()

    def _print(self) -> None:
        self.say(f"{self._n_done} of {self._n_calls}  {self._told()}")
