"""A study written down again: as YAML that reads back as the same study."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path
from typing import Any, Final

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.representer import RoundTripRepresenter

from beacon.question_file import write_questions
from beacon.records import Record, fields_of
from beacon.study import Study

MOST_QUESTIONS: Final = 200
"""With more, the questions go into a file of their own."""
QUESTIONS_FILE: Final = "questions.jsonl"


def write_study(folder: Path, study: Study) -> None:
    """Write `study.yaml`, and `questions.jsonl` where there are many."""
    are_many = len(study.questions) > MOST_QUESTIONS
    tree = _without_defaults(msgspec.structs.replace(study, questions=()) if are_many else study)
    if are_many:
        write_questions(folder / QUESTIONS_FILE, study.questions)
        tree["questions"] = QUESTIONS_FILE
    (folder / "study.yaml").write_text(_dump(tree), encoding="utf-8")


def dump_study(study: Study) -> str:
    """A study as YAML text that `read_study` reads back."""
    return _dump(_without_defaults(study))


def _dump(tree: dict[str, Any]) -> str:
    yaml = YAML()
    yaml.Representer = _Representer
    yaml.width = 100
    yaml.allow_unicode = True
    out = StringIO()
    yaml.dump(tree, out)
    return out.getvalue()


def _without_defaults(value: Any) -> Any:
    """Records as mappings of the fields that are not what they would be if left out."""
    if isinstance(value, tuple):
        return [_without_defaults(item) for item in value]
    if not isinstance(value, Record):
        return msgspec.to_builtins(value)
    given = {
        name: (getattr(value, name), _default(field))
        for name, field in fields_of(type(value)).items()
    }
    return {name: _without_defaults(item) for name, (item, left) in given.items() if item != left}


def _default(field: msgspec.structs.FieldInfo) -> Any:
    """What a field is when it is left out; `NODEFAULT`, which equals nothing, when it can't be."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


class _Representer(RoundTripRepresenter):
    """Writes every text so that it is read back as it was."""

    def text(self, text: str) -> Any:
        # Only in double quotes are these escaped; elsewhere they are line breaks, and folded.
        style = '"' if re.search("[\x85\u2028\u2029]", text) else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Representer.add_representer(str, _Representer.text)
