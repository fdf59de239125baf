"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

study_argument = click.argument("study")
run_argument = click.argument("run", type=click.Path(path_type=Path, file_okay=False))
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
model_option = click.option(
    "--model",
    "models",
    multiple=True,
    metavar="SPEC",
    help="Ask this model instead of the study's own; may be given several times.",
)
repeats_option = click.option(
    "--repeats", type=click.IntRange(min=1), help="Ask this often instead of as the study says."
)
classifier_option = click.option(
    "--classifier", default="reference", show_default=True, help="Who labels the responses."
)
into_option = click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    help="The run's folder; if it holds this study's run, that goes on.  [default: runs/...]",
)
