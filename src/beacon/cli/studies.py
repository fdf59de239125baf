"""`beacon studies`: what ships."""

from __future__ import annotations

import click

from beacon.cli.arguments import json_option
from beacon.study_file import load_study, shipped_studies


@click.command("studies")
@json_option
def studies_command(as_json: bool) -> None:
    """List the studies that ship with Beacon.

    Each can be run by its name, or copied with `beacon new FILE --from NAME`.
    """
    studies = [load_study(path) for path in shipped_studies()]
    if as_json:
        from beacon.cli.output import print_json

        print_json(
            [
                {
                    "name": study.name,
                    "title": study.title,
                    "questions": len(study.questions),
                    "framings": len(study.framings),
                    "models": [entry.label for entry in study.models],
                    "repeats": study.repeats,
                    "calls": study.n_calls,
                }
                for study in studies
            ]
        )
        return
    for study in studies:
        click.echo(
            f"{study.name}  {study.title}: {len(study.questions)} questions, "
            f"{len(study.framings)} framings, {study.repeats} repeats, {study.n_calls} calls"
        )
