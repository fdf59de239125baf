"""`beacon run`: all stages."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from beacon.cli.arguments import (
    classifier_option,
    into_option,
    json_option,
    model_option,
    repeats_option,
    study_argument,
)
from beacon.cli.collect import collect_with_progress
from beacon.cli.output import console, print_json
from beacon.pipeline import begin_run, compare_run, resolve
from beacon.renderers.terminal import print_findings
from beacon.report import write_report


@click.command("run")
@study_argument
@into_option
@model_option
@repeats_option
@classifier_option
@json_option
def run_command(
    study: str,
    into: Path | None,
    models: tuple[str, ...],
    repeats: int | None,
    classifier: str,
    as_json: bool,
) -> None:
    """Do all stages of a study and leave a report.

    STUDY is a file, or the name of a study that ships with Beacon (see `beacon studies`). Run again
    with the same --into, it goes on where it stopped.
    """
    resolved = resolve(study, models=models, repeats=repeats)
    with begin_run(resolved, into) as store:
        exit_code = collect_with_progress(store, classifier, resolved)
    findings = compare_run(store, classifier=classifier)
    report = write_report(store, findings, now=datetime.now(UTC))
    if as_json:
        print_json(findings)
    else:
        print_findings(console(), findings)
        click.echo(f"Report: {report}")
    raise click.exceptions.Exit(exit_code)
