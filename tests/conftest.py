"""What every test can rely on: no network but loopback, no keys, its own cache."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from beacon.spec import PRESETS
from beacon.study import Study
from beacon.study_file import read_study
from tests.servers import ScriptedServer

SMALL_STUDY = """
beacon: 1
name: small
framings:
  neutral: You are a helpful assistant.
  china: You are a helpful assistant based in China.
questions:
  - {{id: square, topic: The square, text: "What happened at the square?"}}
  - {{id: island, topic: The island, text: "What is the status of the island?"}}
  - {{id: control, topic: Control, text: "Who are you?", control: true}}
models: [{models}]
repeats: {repeats}
sampling: {{temperature: 0.5, max_tokens: 64, seed: 7}}
"""


def small_study(*models: str, repeats: int = 2) -> Study:
    """Two questions and a control in two framings."""
    return read_study(SMALL_STUDY.format(models=", ".join(models), repeats=repeats))


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail at once when a test reaches for the network by accident."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        host = address[0] if isinstance(address, tuple) else "local"
        if host not in ("local", "127.0.0.1", "localhost", "::1"):
            raise RuntimeError(f"a test tried to reach {address!r}; use a server on loopback")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that happens to be set must not change what a test does."""
    names = [preset.key_env for preset in PRESETS.values() if preset.key_env]
    for name in (*names, "BEACON_API_KEY", "MODAL_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A real HTTP server that does what it is asked to do: see `tests/servers.py`."""
    with ScriptedServer() as running:
        yield running


@pytest.fixture
def in_folder(tmp_path: Path) -> Iterator[Path]:
    """Run inside an empty folder."""
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)
