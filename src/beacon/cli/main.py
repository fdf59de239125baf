"""The `beacon` command. Commands are imported only when they are used, so that help is instant."""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from typing import Final

import click

from beacon.errors import UsageError
from beacon.version import __version__

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "run": ("beacon.cli.run:run_command", "Do all stages of a study and leave a report."),
    "plan": ("beacon.cli.plan:plan_command", "Count calls, tokens, time and money; send nothing."),
    "collect": ("beacon.cli.collect:collect_command", "Ask what a run is still owed."),
    "classify": ("beacon.cli.classify:classify_command", "Label a run's responses, or one text."),
    "compare": ("beacon.cli.compare:compare_command", "Compute a run's findings."),
    "report": ("beacon.cli.report:report_command", "Write a run's report.html."),
    "status": ("beacon.cli.status:status_command", "Say where a run stands."),
    "studies": ("beacon.cli.studies:studies_command", "List the studies that ship with Beacon."),
    "new": ("beacon.cli.new:new_command", "Write a commented study file to start from."),
    "doctor": ("beacon.cli.doctor:doctor_command", "Say what is installed, set up and answering."),
}
"""Each command in the order of the flow: where it is, and its first line of help."""


class LazyGroup(click.Group):
    """A group that knows its commands' names and help without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the flow."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table, without importing anything."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="beacon")
def cli() -> None:
    """Ask language models the same questions under different framings, and see what changes.

    \b
    study -> plan -> collect -> classify -> compare -> report
    """  # noqa: D301 - click reads the backspace


def main() -> None:
    """Run the command line. A mistake in the input is one message and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an old terminal shows a ? and does not crash
    try:
        # Outside its standalone mode, click hands back the code of an Exit that a command raised.
        exit_code = cli(standalone_mode=False)
    except UsageError as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(2) from None
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    except (click.Abort, KeyboardInterrupt):
        click.echo("Stopped.", err=True)
        raise SystemExit(130) from None
    except BrokenPipeError:
        # Whoever read our output has gone, as in `beacon plan | head`; and Python would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    raise SystemExit(exit_code or 0)
