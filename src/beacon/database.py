"""The database under a run's store: how it is opened, and brought up to date."""

from __future__ import annotations

import os
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa

from beacon.errors import UsageError
from beacon.rows import stamp


def open_database(file: Path) -> sa.Engine:
    """An engine for the SQLite file, in which readers and one writer do not wait for each other."""
    if file.exists() and not os.access(file.parent, os.W_OK):
        # A run on a read-only disk can be read: nobody is writing to it.
        return sa.create_engine(f"sqlite:///file:{quote(str(file))}?immutable=1&uri=true")
    engine = sa.create_engine(f"sqlite:///{file}")
    sa.event.listen(engine, "connect", _set_up_connection)
    return engine


def migrate(engine: sa.Engine, now: datetime) -> None:
    """Bring a store up to the newest migration, each in a transaction of its own."""
    with engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        raw.executescript(
            "CREATE TABLE IF NOT EXISTS migrations "
            "(number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL)"
        )
        done = {row[0] for row in raw.execute("SELECT number FROM migrations")}
        for number, name, script in migrations():
            if number not in done:
                raw.executescript(f"BEGIN;\n{script}")
                note = "INSERT INTO migrations VALUES (?, ?, ?)"
                raw.execute(note, (number, name, stamp(now)))
                raw.commit()


def check_version(engine: sa.Engine, folder: Path) -> None:
    """Refuse a store that a newer Beacon wrote."""
    with engine.connect() as connection:
        newest = connection.execute(sa.text("SELECT max(number) FROM migrations")).scalar()
    known = max(number for number, _, _ in migrations())
    if newest is not None and newest > known:
        raise UsageError(
            f"{folder} was written by a newer Beacon (store version {newest}, this one "
            f"reads up to {known}); upgrade Beacon."
        )


def migrations() -> list[tuple[int, str, str]]:
    """The store's migrations in order: number, name, script."""
    folder = resources.files("beacon") / "migrations"
    files = [file for file in folder.iterdir() if file.name.endswith(".sql")]
    return [
        (int(file.name[:4]), file.name[5:-4], file.read_text(encoding="utf-8"))
        for file in sorted(files, key=lambda file: file.name)
    ]


def _set_up_connection(connection: Any, record: Any) -> None:
    del record
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA busy_timeout = 10000")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()
