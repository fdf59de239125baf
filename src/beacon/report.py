"""7  Findings become files: `findings.json` for programs, `report.html` for people."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec

from beacon.errors import UsageError
from beacon.findings import Findings
from beacon.renderers.html import render
from beacon.run_folder import FINDINGS_FILE, REPORT_FILE, Run
from beacon.store import Store


def write_findings(folder: Path, findings: Findings) -> Path:
    """Write `findings.json` into a run folder."""
    return _write(folder / FINDINGS_FILE, msgspec.json.format(msgspec.json.encode(findings)))


def write_report(store: Store, findings: Findings, *, now: datetime) -> Path:
    """Write `report.html` into a run folder."""
    page = render(findings, store.study(), Run(store), made_at=now)
    return _write(store.folder / REPORT_FILE, page.encode())


def _write(path: Path, content: bytes) -> Path:
    """Write all of a file or nothing: whoever looks meanwhile sees the old one."""
    part = path.with_suffix(path.suffix + ".part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UsageError(f"Cannot write {path}: {error.strerror}.") from None
    return path
