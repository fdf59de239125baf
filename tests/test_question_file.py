"""Questions in a file of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from beacon.errors import StudyError, UsageError
from beacon.question_file import read_questions, write_questions
from beacon.store import Store
from beacon.study import Question
from beacon.study_file import load_study

STUDY = """
beacon: 1
name: many
framings: {neutral: You are a helpful assistant.}
questions: questions.jsonl
models: [smollm2]
"""
MANY = tuple(Question(id=f"q{number}", text=f"Line\u2028{number}?") for number in range(300))


def test_a_study_may_keep_its_questions_beside_it(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    write_questions(tmp_path / "questions.jsonl", MANY)
    assert load_study(tmp_path / "study.yaml").questions == MANY


def test_a_run_of_many_questions_writes_a_study_that_reads_back(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    (tmp_path / "study.yaml").write_text(STUDY)
    write_questions(tmp_path / "questions.jsonl", MANY)
    study = load_study(tmp_path / "study.yaml")
    store = Store.create(tmp_path / "run", study, now=datetime.now(UTC), version="t")
    assert load_study(tmp_path / "run" / "study.yaml") == study == store.study()


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        ('{"id": "a", "text": "?"}\n\n{"id": "a", "text": "!"}\n', 3, "the id 'a' stands twice"),
        ('{"id": "a", "text": "?"}\n{"id": "b"\n', 2, "is not a question"),
        ('{"id": "a", "txt": "?"}\n', 1, "unknown field `txt`"),
        ('{"id": "a", "text": 3}\n', 1, "Expected `str`, got `int`"),
        ('{"id": "", "text": "?"}\n', 1, "is not a question"),
        ("", None, "is empty"),
    ],
)
def test_a_mistake_names_the_file_and_the_line(tmp_path: Path, content, line, said) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(StudyError) as caught:
        read_questions(path)
    ((found, what),) = caught.value.mistakes
    assert found == line
    assert said in what
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    with pytest.raises(UsageError, match=r"questions\.jsonl: No such file"):
        load_study(tmp_path / "study.yaml")
