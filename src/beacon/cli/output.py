"""What commands print: results to standard output, everything else to standard error."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec
from rich.console import Console

from beacon.renderers.progress import LineProgress, TerminalProgress
from beacon.watch import Watch


def print_json(value: Any) -> None:
    """A result as JSON."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    click.echo(text)


def console() -> Console:
    """For results; plain text with a fixed width when it is not a terminal."""
    width = None if sys.stdout.isatty() else 120
    return Console(width=width, highlight=False, soft_wrap=False)


def progress() -> Watch:
    """A bar on a terminal, a line now and then elsewhere."""
    errors = Console(stderr=True, highlight=False)
    return TerminalProgress(errors) if errors.is_terminal else LineProgress(errors)
