"""The error tree, and who is told.

    BeaconError
    ├── UsageError        something the user can mend: one message, exit code 2, no traceback
    │   ├── StudyError    a mistake in a study file, with file and line
    │   └── MissingExtra  an optional part is not installed; says what to install
    └── ModelError        a call that got no reply: stored as a Failure record, the run goes on

Anything else is a bug in Beacon, and crashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from beacon.records import FailureReason


class BeaconError(Exception):
    """The root of all errors that Beacon raises on purpose."""


class UsageError(BeaconError):
    """Something the user can mend. The message names it and the fix."""


class StudyError(UsageError):
    """One or more mistakes in a study file, each with its line."""

    def __init__(self, file: Path | str, mistakes: Sequence[tuple[int | None, str]]) -> None:
        self.file = file
        self.mistakes = tuple(mistakes)
        super().__init__(
            "\n".join(
                f"{file}:{line}: {what}" if line is not None else f"{file}: {what}"
                for line, what in self.mistakes
            )
        )


class MissingExtra(UsageError):  # noqa: N818 - it names what is missing, not a kind of error
    """An optional part of Beacon is needed and not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an extra: pip install 'beacon-audit[{extra}]'")


class ModelError(BeaconError):
    """A call that got no reply. `collect` retries it or stores it; it never ends a run."""

    def __init__(
        self,
        reason: FailureReason,
        message: str,
        *,
        http_status: int | None = None,
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.reason: FailureReason = reason
        self.message = message
        self.http_status = http_status
        self.code = code
        self.retry_after = retry_after
        super().__init__(message)
