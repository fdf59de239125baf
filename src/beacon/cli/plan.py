"""`beacon plan`: what a study will take."""

from __future__ import annotations

import click

from beacon.cli.arguments import json_option, model_option, repeats_option, study_argument
from beacon.cli.output import console, print_json
from beacon.pipeline import resolve
from beacon.plan import TOKENS_PER_SECOND, plan
from beacon.renderers.terminal import plan_table


@click.command("plan")
@study_argument
@model_option
@repeats_option
@click.option(
    "--tokens-per-second",
    type=click.FloatRange(min=0.1),
    default=TOKENS_PER_SECOND,
    show_default=True,
    help="How fast each connection is taken to write.",
)
@json_option
def plan_command(
    study: str,
    models: tuple[str, ...],
    repeats: int | None,
    tokens_per_second: float,
    as_json: bool,
) -> None:
    """Count calls, tokens, time and money; send nothing.

    Money is given for models whose `price` stands in the study.
    """
    planned = plan(
        resolve(study, models=models, repeats=repeats), tokens_per_second=tokens_per_second
    )
    if as_json:
        print_json(planned)
    else:
        console().print(plan_table(planned))
