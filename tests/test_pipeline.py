"""The same from Python: run, read back, make a table."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import beacon
from beacon.run_folder import COLUMNS
from tests.conftest import small_study
from tests.servers import ScriptedServer


def test_run_returns_a_run_that_can_be_read(server: ScriptedServer, tmp_path: Path) -> None:
    run = beacon.run(small_study(server.spec), into=tmp_path / "r")
    assert run.report.exists()
    assert run.findings.n_responses == 12
    assert run.study.name == "small"
    assert beacon.open_run(tmp_path / "r").findings == run.findings


def test_models_and_repeats_replace_the_studys_own(server: ScriptedServer, tmp_path) -> None:
    run = beacon.run(small_study("smollm2"), into=tmp_path / "r", models=[server.spec], repeats=1)
    assert [entry.spec for entry in run.study.models] == [server.spec]
    assert run.findings.n_calls == 6


def test_a_frame_has_a_row_for_each_response(server: ScriptedServer, tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="pip install 'beacon-audit[frames]'")
    frame = beacon.run(small_study(server.spec), into=tmp_path / "r").frame()
    assert list(frame.columns) == list(COLUMNS)
    assert len(frame) == 12
    assert set(frame.category) == {"substantive_response"}
    assert frame.substantive_response.all()
    assert frame.groupby(["framing", "question"]).size().tolist() == [2] * 6


def test_it_works_inside_a_running_event_loop(server: ScriptedServer, tmp_path: Path) -> None:
    """As in a notebook."""

    async def cell() -> int:
        return beacon.run(small_study(server.spec), into=tmp_path / "r").findings.n_responses

    assert asyncio.run(cell()) == 12


def test_the_model_in_the_box_always_carries_its_caution(tmp_path: Path) -> None:
    from beacon.pipeline import resolve

    (entry,) = resolve("standard", models=["smollm2"]).models
    assert "noise" in entry.caution
    assert not resolve("standard").models[0].caution


def test_findings_that_are_not_there_yet_say_what_to_run(server, tmp_path: Path) -> None:
    run = beacon.run(small_study(server.spec), into=tmp_path / "r")
    (tmp_path / "r" / "findings.json").unlink()
    with pytest.raises(beacon.UsageError, match="beacon compare"):
        _ = run.findings
