"""The house rules that reviewers would otherwise repeat."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

import beacon

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "beacon"
MODULES = sorted(PACKAGE.rglob("*.py"))
STAGES = {"plan", "collect", "classify", "compare", "report"}
FOUNDATION = {"records", "errors", "ids", "version", "watch"}
MIDDLE = {
    "spec", "study", "study_file", "study_dump", "question_file", "database", "status", "rows",
    "tables", "store", "store_reader", "stats", "model", "models", "retry", "findings",
    "expectations", "classifiers", "run_folder", "renderers",
}  # fmt: skip
TOP = {"pipeline", "cli", "__init__", "__main__"}


def room(path: Path) -> str:
    """The module or folder of the package that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The rooms of our own package that a file imports, type-checking imports left out."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found.update(name.split(".")[1] for name in names if name.startswith("beacon."))
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return found


def test_every_room_has_its_place() -> None:
    assert {room(path) for path in MODULES} == STAGES | FOUNDATION | MIDDLE | TOP


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_stages_never_import_each_other(stage: str) -> None:
    assert not imports(PACKAGE / f"{stage}.py") & (STAGES - {stage})


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    """records, errors, ids <- store, stats, models <- stages <- pipeline <- cli."""
    here, used = room(path), imports(path)
    if here in FOUNDATION:
        assert used <= FOUNDATION
    elif here in MIDDLE - {"renderers"}:
        assert used <= FOUNDATION | MIDDLE
    elif here == "renderers":
        assert used <= FOUNDATION | MIDDLE | {"plan"}
    elif here in STAGES:
        assert not used & TOP
    elif here == "pipeline":
        assert "cli" not in used


def test_statistics_know_no_records() -> None:
    for path in (PACKAGE / "stats").glob("*.py"):
        assert imports(path) <= {"stats"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_is_short_and_says_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text))
    assert text.count("\n") <= 420, "over 400 lines: is it two rooms?"


def test_functions_stay_readable() -> None:
    too_long, too_wide = [], []
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{path.relative_to(PACKAGE)}:{node.name}"
                if (node.end_lineno or 0) - node.lineno > 60:
                    too_long.append(name)
                if len([*node.args.args, *node.args.kwonlyargs]) > 8:
                    too_wide.append(name)
    assert (too_long, too_wide) == ([], [])


def test_the_public_names_are_all_there_and_sorted() -> None:
    assert sorted(beacon.__all__) == beacon.__all__
    for name in beacon.__all__:
        assert getattr(beacon, name) is not None


def test_no_pickle_and_no_shell() -> None:
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^\s*(import|from) (pickle|shelve|dill)\b", text, re.MULTILINE)
        assert "shell=True" not in text


def test_nothing_tells_where_it_was_built() -> None:
    """No path of this machine, no registry host, no lock file that records download addresses."""
    here = [
        re.escape(f"{folder}/") for folder in (ROOT.parent, Path.home()) if len(folder.parts) > 1
    ]
    hosts = [r"files\.python" + "hosted", r"registry\.npm" + "js", r"pypi\." + "org"]
    forbidden = re.compile("|".join([*here, *hosts]))
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in listed.splitlines():
        path = ROOT / name
        if path.is_file() and path.suffix not in (".png", ".onnx"):
            assert not forbidden.search(path.read_text(encoding="utf-8", errors="replace")), name
        assert not name.endswith((".lock", "package-lock.json")), name
