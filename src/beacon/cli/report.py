"""`beacon report`: the page."""

from __future__ import annotations

import webbrowser
from datetime import UTC, datetime
from pathlib import Path

import click

from beacon.cli.arguments import classifier_option, json_option, run_argument
from beacon.cli.output import print_json
from beacon.pipeline import compare_run
from beacon.report import write_report
from beacon.store import Store


@click.command("report")
@run_argument
@classifier_option
@click.option("--open", "should_open", is_flag=True, help="Open it in the browser.")
@json_option
def report_command(run: Path, classifier: str, should_open: bool, as_json: bool) -> None:
    """Write a run's report.html.

    One file that needs no network and can be sent to anyone.
    """
    store = Store.open(run)
    findings = compare_run(store, classifier=classifier)
    report = write_report(store, findings, now=datetime.now(UTC))
    if as_json:
        print_json({"run": str(run), "report": str(report)})
    else:
        click.echo(f"Report: {report}")
    if should_open:
        webbrowser.open(report.resolve().as_uri())
