"""Questions in a file of their own, one JSON object a line, for studies with thousands of them.

    # in the study                  # questions.jsonl
    questions: questions.jsonl      {"id": "q1", "text": "What happened ...?", "topic": "..."}

A YAML parser takes about a millisecond for each question; this takes a microsecond.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from beacon.errors import StudyError, UsageError
from beacon.study import Question

_decoder = msgspec.json.Decoder(Question)


def read_questions(path: Path) -> tuple[Question, ...]:
    """The questions in a JSONL file; a `StudyError` lists every line that is wrong."""
    try:
        # Not by str.splitlines, which also splits at U+2028, and JSON may hold that unescaped.
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"Cannot read the questions {path}: {error.strerror}.") from None
    except ValueError as error:  # a null character, which no path may hold
        raise UsageError(f"Cannot read the questions {str(path)!r}: {error}.") from None
    questions: dict[str, Question] = {}
    mistakes: list[tuple[int | None, str]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            question = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            mistakes.append((number, f"is not a question as a JSON object: {error}."))
            continue
        if question.id in questions:
            mistakes.append((number, f"the id {question.id!r} stands twice; change one of them."))
        questions[question.id] = question
    if not questions and not mistakes:
        mistakes.append((None, "is empty; give at least one question."))
    if mistakes:
        raise StudyError(path, mistakes)
    return tuple(questions.values())


def write_questions(path: Path, questions: tuple[Question, ...]) -> None:
    """Write questions so that `read_questions` reads them back."""
    lines = (msgspec.json.encode(question) + b"\n" for question in questions)
    path.write_bytes(b"".join(lines))
