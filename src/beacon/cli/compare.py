"""`beacon compare`: findings."""

from __future__ import annotations

from pathlib import Path

import click

from beacon.cli.arguments import classifier_option, json_option, run_argument
from beacon.cli.output import console, print_json
from beacon.pipeline import compare_run
from beacon.renderers.terminal import print_findings
from beacon.store import Store


@click.command("compare")
@run_argument
@classifier_option
@json_option
def compare_command(run: Path, classifier: str, as_json: bool) -> None:
    """Compute a run's findings.

    They are printed, and written to `findings.json` in the run's folder.
    """
    findings = compare_run(Store.open(run), classifier=classifier)
    if as_json:
        print_json(findings)
    else:
        print_findings(console(), findings)
