"""`beacon new`: a study file to start from."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import click

from beacon.errors import UsageError
from beacon.study_file import find_study


@click.command("new")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--from", "source", metavar="STUDY", help="Copy this study instead.")
def new_command(file: Path, source: str | None) -> None:
    """Write a commented study file to start from."""
    template = Path(str(resources.files("beacon") / "studies" / "template" / "new.yaml"))
    text = (find_study(source) if source else template).read_text(encoding="utf-8")
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise UsageError(f"{file} exists; choose another name.") from None
    except OSError as error:
        raise UsageError(f"Cannot write {file}: {error.strerror}.") from None
    click.echo(f"Wrote {file}. Next: beacon plan {file}")
