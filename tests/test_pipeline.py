"""The same from Python: run, read back, make a table."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
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


BAD_STUDIES = {
    "baseline": {"baseline": "nowhere"},
    "no models": {"models": ()},
    "repeats": {"repeats": 0},
    "name": {"name": "../../evil"},
    "questions": {"questions": (small_study("smollm2").questions[0],) * 2},
}


@pytest.mark.parametrize("what", BAD_STUDIES)
def test_a_study_made_in_python_is_held_to_the_rules_of_the_file(what, in_folder: Path) -> None:
    study = msgspec.structs.replace(small_study("smollm2"), **BAD_STUDIES[what])
    with pytest.raises(beacon.UsageError):
        beacon.run(study)
    assert not list(in_folder.iterdir())


def test_one_model_may_be_given_as_a_text_and_a_study_keeps_what_it_says_of_it(server) -> None:
    from beacon.pipeline import resolve

    study = small_study("{spec: ollama/x, name: X, limit: 3}", "ollama/y")
    (entry,) = resolve(study, models="ollama/x").models
    assert (entry.name, entry.limit) == ("X", 3)
    assert resolve(study, models=["X"]).models == (entry,)


def test_a_frame_can_be_asked_for_by_the_classifiers_plain_name(server, tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="pip install 'beacon-audit[frames]'")
    run = beacon.run(small_study(server.spec, repeats=1), into=tmp_path / "r")
    assert len(run.frame("reference")) == len(run.frame("reference@1")) == 6


def test_a_file_that_is_no_store_of_ours_is_left_as_it_is(server, tmp_path: Path) -> None:
    theirs = tmp_path / "r" / "store.sqlite"
    theirs.parent.mkdir()
    theirs.write_bytes(b"not a database, but dear to somebody " * 40)
    before = theirs.read_bytes()
    with pytest.raises(beacon.UsageError, match="can't be used"):
        beacon.run(small_study(server.spec), into=tmp_path / "r")
    assert theirs.read_bytes() == before
