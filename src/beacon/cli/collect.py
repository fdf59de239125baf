"""`beacon collect`: ask what is owed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from shlex import quote

import click

from beacon.cli.arguments import (
    classifier_option,
    into_option,
    json_option,
    model_option,
    repeats_option,
)
from beacon.cli.output import print_json, progress
from beacon.pipeline import begin_run, collect_run, resolve
from beacon.store import Store
from beacon.store_reader import STORE_FILE
from beacon.study import Study

INTERRUPTED = 130
NOT_ALL_ASKED = 1


@click.command("collect")
@click.argument("source", metavar="RUN|STUDY")
@into_option
@model_option
@repeats_option
@classifier_option
@json_option
def collect_command(
    source: str,
    into: Path | None,
    models: tuple[str, ...],
    repeats: int | None,
    classifier: str,
    as_json: bool,
) -> None:
    """Ask what a run is still owed.

    Given a run's folder, asks only what is missing or failed technically. Given a study, begins a
    run of it.
    """
    if (Path(source) / STORE_FILE).exists():
        if into or models or repeats:
            raise click.UsageError(
                "--into, --model and --repeats begin a run; this one has begun. "
                "To add to it: beacon collect STUDY --into RUN."
            )
        store = Store.open(Path(source))
        exit_code = collect_with_progress(store, classifier)
    else:
        study = resolve(source, models=models, repeats=repeats)
        with begin_run(study, into) as store:
            exit_code = collect_with_progress(store, classifier, study)
    if as_json:
        n_calls, n_answered = store.study().n_calls, store.n_settled()
        told = {"calls": n_calls, "answered": n_answered, "owed": n_calls - n_answered}
        print_json({"run": str(store.folder), **told})
    else:
        click.echo(f"Next: beacon report {quote(str(store.folder))}", err=True)
    raise click.exceptions.Exit(exit_code)


def collect_with_progress(store: Store, classifier: str, study: Study | None = None) -> int:
    """Collect, show how it goes, say where it stands; returns the exit code."""
    watch = progress()
    try:
        collected = collect_run(store, study, classifier=classifier, watch=watch)
    except (KeyboardInterrupt, asyncio.CancelledError):
        watch.say(where_it_stands(store))
        raise click.exceptions.Exit(INTERRUPTED) from None
    for model, why in collected.gave_up.items():
        watch.say(f"{model} was asked no further: {why}")
    if collected.was_stopped:
        watch.say(where_it_stands(store))
        raise click.exceptions.Exit(INTERRUPTED)
    owed = store.study().n_calls - store.n_settled()
    if owed:
        watch.say(where_it_stands(store))
    return NOT_ALL_ASKED if collected.gave_up or store.n_settled() == 0 else 0


def where_it_stands(store: Store) -> str:
    """How much is there, and how to go on."""
    if not store.has_study():
        return "Nothing was asked."
    n_calls, n_done = store.study().n_calls, store.n_settled()
    folder = quote(str(store.folder))
    return (
        f"{n_done} of {n_calls} calls are answered and stored in {store.folder}. "
        f"To go on: beacon collect {folder} (and then: beacon report {folder})"
    )
