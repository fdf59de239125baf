"""`beacon status`: where a run stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from beacon.cli.arguments import json_option, run_argument
from beacon.cli.output import console, print_json
from beacon.run_folder import FINDINGS_FILE, REPORT_FILE
from beacon.status import SETTLED
from beacon.store import Store


@click.command("status")
@run_argument
@json_option
def status_command(run: Path, as_json: bool) -> None:
    """Say where a run stands.

    It can be asked while the run is being collected.
    """
    store = Store.open(run)
    study = store.study()
    counts = store.status_counts()
    n_each = study.n_calls // len(study.models)
    models: list[dict[str, Any]] = []
    for entry in study.models:
        by_status = counts.get(entry.label, {})
        n_settled = sum(n for kind, n in by_status.items() if kind in SETTLED)
        models.append(
            {
                "model": entry.label,
                "calls": n_each,
                "answered": n_settled,
                "owed": n_each - n_settled,
                "statuses": by_status,
            }
        )
    told = {
        "run": str(run),
        "study": study.name,
        "study_id": study.id,
        "begun": store.created_at(),
        "calls": study.n_calls,
        "answered": sum(model["answered"] for model in models),
        "owed": sum(model["owed"] for model in models),
        "models": models,
        "classifiers": store.classifiers(),
        "findings": (run / FINDINGS_FILE).exists(),
        "report": str(run / REPORT_FILE) if (run / REPORT_FILE).exists() else None,
    }
    if as_json:
        print_json(told)
    else:
        _print(told)


def _print(told: dict[str, Any]) -> None:
    screen = console()
    table = Table(
        title=f"{told['run']}: {told['answered']} of {told['calls']} calls answered",
        title_justify="left",
        title_style="bold",
    )
    for name in ("model", "calls", "answered", "owed", "how they ended"):
        table.add_column(name, justify="right" if name in ("calls", "answered", "owed") else "left")
    for model in told["models"]:
        ended = ", ".join(f"{kind.replace('_', ' ')} {n}" for kind, n in model["statuses"].items())
        table.add_row(
            Text(model["model"]),
            str(model["calls"]),
            str(model["answered"]),
            str(model["owed"]),
            ended,
        )
    screen.print(table)
    if told["owed"]:
        screen.print(f"To go on: beacon collect {told['run']}", markup=False)
    if told["report"]:
        screen.print(f"Report: {told['report']}", markup=False)
