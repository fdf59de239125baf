"""`beacon doctor`: what is installed, which keys are set, which endpoints answer."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from typing import Any, Final

import click

from beacon.cli.arguments import json_option
from beacon.cli.output import console, print_json
from beacon.errors import UsageError
from beacon.models.box import find_box
from beacon.models.openai import OpenAIModel
from beacon.spec import MODAL_KEY_ENV, PRESETS, URL_KEY_ENV, Spec
from beacon.study import ModelEntry, Timeouts
from beacon.version import __version__

EXTRAS: Final[dict[str, tuple[str, ...]]] = {
    "local": ("xllamacpp",),
    "hf": ("transformers", "torch"),
    "frames": ("pandas",),
}
PATIENCE: Final = Timeouts(connect=3.0, first_byte=5.0, whole=5.0)


@click.command("doctor")
@click.option("--offline", is_flag=True, help="Ask no endpoint.")
@json_option
def doctor_command(offline: bool, as_json: bool) -> None:
    """Say what is installed, set up and answering.

    Endpoints are asked for their list of models: those on this machine, and those whose key is set.
    Keys are never shown.
    """
    told = {
        "beacon": __version__,
        "python": platform.python_version(),
        "extras": {extra: _installed(packages) for extra, packages in EXTRAS.items()},
        "box": _box(os.environ),
        "keys": {
            preset.key_env: bool(os.environ.get(preset.key_env))
            for preset in PRESETS.values()
            if preset.key_env
        }
        | {name: bool(os.environ.get(name)) for name in (URL_KEY_ENV, MODAL_KEY_ENV)},
        "endpoints": {} if offline else asyncio.run(_endpoints(os.environ)),
    }
    if as_json:
        print_json(told)
    else:
        _print(told)


def _installed(packages: tuple[str, ...]) -> dict[str, str | None]:
    versions: dict[str, str | None] = {}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def _box(environ: Mapping[str, str]) -> str | None:
    found = find_box(environ)
    return None if found is None else str(found)


async def _endpoints(environ: Mapping[str, str]) -> dict[str, str]:
    names = [
        name
        for name, preset in PRESETS.items()
        if preset.is_local or environ.get(preset.key_env or "")
    ]
    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(_ask(name, environ)) for name in names}
    return {name: task.result() for name, task in tasks.items()}


async def _ask(name: str, environ: Mapping[str, str]) -> str:
    preset = PRESETS[name]
    spec = Spec(kind="http", target="any", url=preset.url, preset=preset)
    entry = ModelEntry(spec=f"{name}/any", timeouts=PATIENCE)
    model = OpenAIModel(entry, spec, environ.get(preset.key_env or "", ""), environ)
    try:
        served = await model.served()
    except UsageError as error:
        return str(error)
    finally:
        await model.close()
    return f"answers, {len(served)} models"


def _print(told: dict[str, Any]) -> None:
    screen = console()
    lines = [f"Beacon {told['beacon']}, Python {told['python']}"]
    for extra, packages in told["extras"].items():
        missing = any(version is None for version in packages.values())
        shown = ", ".join(f"{name} {version or 'missing'}" for name, version in packages.items())
        fix = f"   pip install 'beacon-audit[{extra}]'" if missing else ""
        lines.append(f"  extra {extra:7} {shown}{fix}")
    lines.append(
        f"  model in the box: {told['box'] or 'not fetched yet; the first use fetches it'}"
    )
    for name, is_set in told["keys"].items():
        lines.append(f"  key {name:20} {'set' if is_set else 'not set'}")
    for name, answer in told["endpoints"].items():
        lines.append(f"  endpoint {name:12} {answer}")
    for line in lines:
        screen.print(line, markup=False, soft_wrap=True)
