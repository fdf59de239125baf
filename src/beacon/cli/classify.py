"""`beacon classify`: labels for a run, or for one text."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from beacon.classify import classify
from beacon.cli.arguments import classifier_option, json_option
from beacon.records import Label


@click.command("classify")
@click.argument("run", required=False, type=click.Path(path_type=Path))
@click.option("--text", help="Label this text instead of a run; - reads standard input.")
@click.option("--finish-reason", help="With --text: the finish reason that came with it.")
@classifier_option
@json_option
def classify_command(
    run: Path | None, text: str | None, finish_reason: str | None, classifier: str, as_json: bool
) -> None:
    """Label a run's responses, or one text.

    Labels are added beside those of other classifiers; nothing is overwritten.
    """
    if (run is None) == (text is None):
        raise click.UsageError("Give a run's folder, or --text; not both.")
    if run is not None:
        _classify_run(run, classifier, as_json)
        return
    assert text is not None
    said = sys.stdin.read() if text == "-" else text
    _print_label(classify(said, finish_reason=finish_reason, classifier=classifier), as_json)


def _classify_run(folder: Path, classifier: str, as_json: bool) -> None:
    # Only here: a single text needs neither the store nor the pipeline, and starts faster so.
    from beacon.cli.output import print_json
    from beacon.pipeline import classify_run
    from beacon.store import Store

    store = Store.open(folder)
    n_labelled = classify_run(store, classifier=classifier)
    if as_json:
        print_json({"run": str(folder), "classifier": classifier, "n_labelled": n_labelled})
    else:
        click.echo(f"{n_labelled} responses of {folder} were labelled by {classifier}.")


def _print_label(label: Label, as_json: bool) -> None:
    if as_json:
        from beacon.cli.output import print_json

        flags = ("technical_failure", "substantive_response", "content_refusal", "partial_response")
        names = ("category", "layer", "length", "confidence", "evidence", "classifier")
        print_json({name: getattr(label, name) for name in (*names, *flags)})
        return
    evidence = "; ".join(f"{item.rule}: {item.detail}" for item in label.evidence)
    click.echo(f"{label.category}  ({evidence})")
