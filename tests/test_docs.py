"""The documentation is run: every command and every example, in order, as a reader would."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from beacon.cli.main import COMMANDS
from beacon.spec import PRESETS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "docs" / "guide" / "first-study.md"]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    kind: str
    text: str


def steps(page: Path) -> list[Step]:
    found = []
    for kind, body in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            found.append(Step("python", body))
        else:
            lines = [line[2:] for line in body.splitlines() if line.startswith("$ ")]
            found.extend(Step("console", line) for line in lines)
    return found


def run_step(step: Step, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", step.text]
    if step.kind == "console":
        name, *arguments = shlex.split(step.text, comments=True)
        assert name == "beacon", f"a page may run beacon and nothing else: {step.text}"
        command = [sys.executable, "-m", "beacon", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
    )  # fmt: skip


@pytest.mark.box
@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_example_on_the_page_works(page: Path, tmp_path: Path) -> None:
    todo = steps(page)
    assert len(todo) >= 4
    for step in todo:
        done = run_step(step, tmp_path)
        assert done.returncode == 0, f"{step.text}\n{done.stdout}\n{done.stderr}"


def test_the_page_of_commands_is_what_the_commands_say() -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        from generate_commands import PAGE, page
    finally:
        sys.path.pop(0)
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python docs/generate_commands.py"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_is_in_the_readme_and_in_the_docs(name: str) -> None:
    assert f"beacon {name}" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"## beacon {name}\n" in (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_is_documented_with_its_key(name: str) -> None:
    page = (ROOT / "docs" / "guide" / "models.md").read_text(encoding="utf-8")
    assert f"`{name}/NAME`" in page
    key = PRESETS[name].key_env
    assert key is None or f"`{key}`" in page


def test_every_file_of_the_package_has_its_phrase_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "beacon"
    for path in sorted(package.iterdir()):
        if path.name in ("__pycache__", "py.typed", "__main__.py"):
            continue
        name = f"{path.name}/" if path.is_dir() else path.name
        assert re.search(rf"^\s+{re.escape(name)}\s+\S", readme, re.MULTILINE), name


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
