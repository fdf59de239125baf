"""The run's store: append-only, readable while written, of the same shape as its tables say."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from beacon.classify import load_classifier
from beacon.database import migrations
from beacon.errors import UsageError
from beacon.records import Call, Evidence, Failure, Label, Reply, Response, Sampling, TokenLogprob
from beacon.rows import Landed
from beacon.status import status_of
from beacon.store import Store
from beacon.tables import metadata, views
from tests.conftest import small_study

NOW = datetime(2026, 11, 15, 12, 0, 0, 123000, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "run", small_study("smollm2"), now=NOW, version="test")


def landed(response: Response, *, question: str = "square", repeat: int = 0) -> Landed:
    call = Call(
        question_id=question,
        framing_id="neutral",
        model="smollm2",
        spec="smollm2",
        system="s",
        prompt="p",
        sampling=Sampling(),
        repeat=repeat,
    )
    return Landed(
        call=call, call_id=call.id, response=response, status=status_of(response), asked_at=NOW
    )


def label(category: str, rule: str = "long_text") -> Label:
    return Label(
        category=category,
        layer="model",
        length=5,
        evidence=(Evidence(rule=rule, detail="d", start=1, end=3),),
        classifier="reference@1",
    )


FULL_REPLY = Reply(
    text="中文, emoji 🙂, line\u2028separator, nul-free",
    reasoning="because",
    finish_reason="stop",
    prompt_tokens=3,
    completion_tokens=4,
    logprobs=(TokenLogprob(token="中", logprob=-0.5, top=(("中", -0.5), ("x", -2.0))),),
    served_model="m-1",
    provider="Host",
    latency=1.25,
    n_tries=2,
)
FAILURE = Failure(reason="http", message="no", http_status=500, code="server_error", latency=0.5)


@pytest.mark.parametrize("response", [FULL_REPLY, FAILURE, Reply(text="")])
def test_a_response_comes_back_as_it_was(store: Store, response: Response) -> None:
    store.append_responses([landed(response)])
    (stored,) = Store.open(store.folder).responses()
    assert stored.response == response
    assert stored.asked_at == "2026-11-15T12:00:00.123+00:00"


def test_a_label_comes_back_as_it_was(store: Store) -> None:
    (stored,) = store.append_responses([landed(FULL_REPLY)])
    instrument = store.add_instrument("classifier", "reference@1", NOW)
    store.append_labels(instrument, [(stored.id, label("partial_response"))])
    ((_, held),) = store.labelled(instrument)
    assert held == label("partial_response")


@pytest.mark.parametrize("table", ["studies", "instruments", "responses", "labels"])
@pytest.mark.parametrize("change", ["DELETE FROM {}", "UPDATE {} SET id = id + 100"])
def test_rows_are_only_added(store: Store, table: str, change: str) -> None:
    (stored,) = store.append_responses([landed(FULL_REPLY)])
    instrument = store.add_instrument("classifier", "reference@1", NOW)
    store.append_labels(instrument, [(stored.id, label("partial_response"))])
    with (
        sqlite3.connect(store.folder / "store.sqlite") as raw,
        pytest.raises(sqlite3.IntegrityError, match="only added"),
    ):
        raw.execute(change.format(table))


def test_the_newest_response_and_label_count(store: Store) -> None:
    store.append_responses([landed(FAILURE)])
    (second,) = store.append_responses([landed(FULL_REPLY)])
    assert [stored.response for stored in store.responses()] == [FULL_REPLY]
    instrument = store.add_instrument("classifier", "reference@1", NOW)
    store.append_labels(instrument, [(second.id, label("technical_failure"))])
    store.append_labels(instrument, [(second.id, label("content_refusal"))])
    ((_, held),) = store.labelled(instrument)
    assert held is not None
    assert held.category == "content_refusal"
    (cell,) = store.cells(instrument)
    assert cell.counts == {"content_refusal": 1}


def test_a_second_classifier_adds_labels_beside_the_first(store: Store) -> None:
    (stored,) = store.append_responses([landed(FULL_REPLY)])
    one = store.add_instrument("classifier", "reference@1", NOW)
    two = store.add_instrument("classifier", "other@3", NOW)
    store.append_labels(one, [(stored.id, label("partial_response"))])
    store.append_labels(two, [(stored.id, label("content_refusal"))])
    assert store.cells(one)[0].counts == {"partial_response": 1}
    assert store.cells(two)[0].counts == {"content_refusal": 1}
    assert store.classifiers() == ["reference@1", "other@3"]


def test_a_group_is_stored_whole_or_not_at_all(store: Store) -> None:
    bad = landed(msgspec.structs.replace(FULL_REPLY, served_model=object()), repeat=1)
    with pytest.raises(sa.exc.SQLAlchemyError):
        store.append_responses([landed(FULL_REPLY), bad])
    assert list(store.responses()) == []
    store.append_responses([landed(FULL_REPLY)])
    assert len(list(store.responses())) == 1


def test_it_can_be_read_while_a_write_is_under_way(store: Store) -> None:
    store.append_responses([landed(FULL_REPLY)])
    with sqlite3.connect(store.folder / "store.sqlite", isolation_level=None) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute(
            "INSERT INTO instruments (kind, name, version, stored_at) VALUES ('judge','x','1','')"
        )
        assert len(list(Store.open(store.folder).responses())) == 1
        writer.execute("ROLLBACK")
    writer.close()


def test_the_tables_are_what_the_migrations_made(store: Store) -> None:
    engine = sa.create_engine(f"sqlite:///{store.folder / 'store.sqlite'}")
    inspected = sa.inspect(engine)
    for declared in (*metadata.tables.values(), *views.tables.values()):
        real = [
            (column["name"], str(column["type"])) for column in inspected.get_columns(declared.name)
        ]
        ours = [(column.name, str(column.type)) for column in declared.columns]
        assert [(name, kind.replace("FLOAT", "REAL")) for name, kind in ours] == real
    engine.dispose()


def test_migrations_are_numbered_without_gaps() -> None:
    numbers = [number for number, _, _ in migrations()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_resolved_study_is_inside_and_beside(store: Store) -> None:
    assert Store.open(store.folder).study() == small_study("smollm2")
    assert "beacon: 1" in (store.folder / "study.yaml").read_text()


def test_a_run_may_grow_by_repeats_and_models(store: Store) -> None:
    store.append_responses([landed(FULL_REPLY)])
    bigger = small_study("smollm2", "ollama/x", repeats=5)
    grown = Store.create(store.folder, bigger, now=NOW, version="test")
    assert grown.study() == bigger


@pytest.mark.parametrize("other", [small_study("smollm2", repeats=1), small_study("ollama/x")])
def test_a_run_with_responses_does_not_change_its_study(store: Store, other) -> None:
    store.append_responses([landed(FULL_REPLY)])
    with pytest.raises(UsageError, match="holds a run of another study"):
        Store.create(store.folder, other, now=NOW, version="test")
    assert store.study() == small_study("smollm2")


def test_a_run_without_responses_takes_another_study(store: Store) -> None:
    other = small_study("ollama/x")
    assert Store.create(store.folder, other, now=NOW, version="test").study() == other


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="is not empty and holds no run"):
        Store.create(tmp_path, small_study("smollm2"), now=NOW, version="test")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_store_that_is_not_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite").write_text("this is not a database, it is a text " * 20)
    with pytest.raises(UsageError, match=r"store\.sqlite can't be used: file is not a database"):
        Store.open(tmp_path)


def test_a_store_of_a_newer_beacon_is_refused(store: Store) -> None:
    with sqlite3.connect(store.folder / "store.sqlite") as raw:
        raw.execute("INSERT INTO migrations VALUES (99, 'future', '')")
    raw.close()
    with pytest.raises(UsageError, match="newer Beacon"):
        Store.open(store.folder)


def test_a_classifier_that_was_never_used_is_named(store: Store) -> None:
    with pytest.raises(UsageError, match="has nothing by the classifier reference@1"):
        store.instrument_id("classifier", load_classifier("reference").name)
