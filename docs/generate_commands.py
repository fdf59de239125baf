"""Run with `python docs/generate_commands.py`: writes commands.md from the commands' own help."""

import os
import subprocess
import sys
from pathlib import Path

from beacon.cli.main import COMMANDS

PAGE = Path(__file__).parent / "commands.md"
HEAD = """# Commands

Every command with its own help. This page is written by `docs/generate_commands.py`; a test holds
it to what the commands say.

Results go to standard output, everything else to standard error. Exit codes: 0 done; 1 a model
could not be asked at all; 2 something in the input has to be mended, and the message says what; 130
stopped by Ctrl-C, with everything that came in stored.
"""


def help_of(*arguments: str) -> str:
    """What the command line prints."""
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "beacon", *arguments, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "96"},
    )
    return done.stdout.replace("python -m beacon", "beacon").rstrip()


def page() -> str:
    """The whole page."""
    sections = [
        f"## {command}\n\n```console\n$ {command} --help\n{help_of(*command.split()[1:])}\n```\n"
        for command in ("beacon", *(f"beacon {name}" for name in COMMANDS))
    ]
    return "\n".join([HEAD, *sections])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
