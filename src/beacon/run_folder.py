"""A run as Python users see it: its study, its responses, its findings, its table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from beacon.errors import MissingExtra, UsageError
from beacon.findings import Findings
from beacon.records import Label, Reply, Stored
from beacon.store import Store
from beacon.study import Study

if TYPE_CHECKING:
    import pandas as pd

FINDINGS_FILE = "findings.json"
REPORT_FILE = "report.html"


def open_run(folder: Path | str) -> Run:
    """The run in a folder."""
    return Run(Store.open(Path(folder)))


class Run:
    """A run folder, read."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.folder = store.folder

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @property
    def study(self) -> Study:
        """The study as it was resolved for this run."""
        return self.store.study()

    @property
    def report(self) -> Path:
        """Where the report lies."""
        return self.folder / REPORT_FILE

    @property
    def findings(self) -> Findings:
        """What `compare` last found."""
        file = self.folder / FINDINGS_FILE
        try:
            return msgspec.json.decode(file.read_bytes(), type=Findings)
        except (FileNotFoundError, msgspec.DecodeError):
            raise UsageError(
                f"{self.folder} has no findings that can be read; "
                f"run `beacon compare {self.folder}`."
            ) from None

    def responses(self, classifier: str | None = None) -> Iterator[tuple[Stored, Label | None]]:
        """Every response that counts, with its label by `classifier` (the last one used)."""
        names = self.store.classifiers()
        name = classifier or (names[-1] if names else None)
        if name and "@" not in name:
            used = [known for known in names if known.startswith(f"{name}@")]
            name = used[-1] if used else name
        if name is None:
            for stored in self.store.responses():
                yield stored, None
            return
        yield from self.store.labelled(self.store.instrument_id("classifier", name))

    def frame(self, classifier: str | None = None) -> pd.DataFrame:
        """The responses as a pandas DataFrame, a row each."""
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtra("A DataFrame", "frames") from None
        questions = {question.id: question for question in self.study.questions}
        rows = (_row(stored, label, questions) for stored, label in self.responses(classifier))
        return pd.DataFrame.from_records(list(rows), columns=list(COLUMNS))


COLUMNS = (
    "response_id",
    "call_id",
    "model",
    "framing",
    "question",
    "topic",
    "language",
    "control",
    "repeat",
    "asked_at",
    "status",
    "text",
    "reasoning",
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "latency",
    "served_model",
    "provider",
    "error",
    "category",
    "technical_failure",
    "substantive_response",
    "content_refusal",
    "partial_response",
    "layer",
    "length",
    "confidence",
    "rule",
    "evidence",
    "classifier",
)

OF_A_REPLY = tuple(
    name for name in COLUMNS[COLUMNS.index("text") : COLUMNS.index("error")] if name != "latency"
)
OF_A_LABEL = tuple(name for name in COLUMNS[COLUMNS.index("category") :] if name != "evidence")


def _row(stored: Stored, label: Label | None, questions: dict[str, Any]) -> dict[str, Any]:
    response, question = stored.response, questions[stored.question_id]
    row: dict[str, Any] = {
        "response_id": stored.id,
        "call_id": stored.call_id,
        "model": stored.model,
        "framing": stored.framing_id,
        "question": stored.question_id,
        "topic": question.topic,
        "language": question.language,
        "control": question.control,
        "repeat": stored.repeat,
        "asked_at": stored.asked_at,
        "status": stored.status,
        "latency": response.latency,
    }
    if isinstance(response, Reply):
        row |= {name: getattr(response, name) for name in OF_A_REPLY}
    else:
        row["error"] = response.message
    if label is not None:
        row |= {name: getattr(label, name) for name in OF_A_LABEL}
        row["evidence"] = "; ".join(item.detail for item in label.evidence)
    return row
