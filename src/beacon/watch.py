"""Who is told how a run goes: progress bars, logs, nobody."""

from __future__ import annotations

from collections.abc import Sequence

from beacon.records import Label


class Watch:
    """Told of everything, says nothing; the base for those that do. Any thread may call."""

    def say(self, message: str) -> None:
        """Something that the user should read once."""

    def started(self, n_calls: int, n_done: int) -> None:
        """Collecting begins: how many calls there are, and how many need not be asked."""

    def stored(self, labels: Sequence[Label | None]) -> None:
        """A group is stored and labelled; None is a label that waits for the controls."""

    def stopping(self) -> None:
        """The user asked to stop; what is in flight is finished."""

    def ended(self) -> None:
        """Collecting is over."""
