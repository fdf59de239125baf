"""The study file: YAML 1.2 in, a checked `Study` out, every mistake named with its line."""

from __future__ import annotations

import difflib
import re
import types
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq, TaggedScalar
from ruamel.yaml.constructor import RoundTripConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError

from beacon.errors import StudyError, UsageError
from beacon.question_file import read_questions
from beacon.records import Record, fields_of, storable
from beacon.spec import check_url, parse_spec
from beacon.study import (
    CLAIMS_ON_A_CATEGORY,
    Expectation,
    Framing,
    ModelEntry,
    Question,
    Study,
)

T = TypeVar("T", bound=Record)

LISTS: Final[dict[str, type[Record]]] = {
    "framings": Framing,
    "questions": Question,
    "models": ModelEntry,
    "expectations": Expectation,
}
NEVER_EMPTY: Final = ("framings", "questions", "models")


def load_study(source: Path | str) -> Study:
    """The study in a file, or one that ships with Beacon, by its name."""
    path = find_study(source)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        what = f"is not UTF-8 text ({error.reason}); save it as UTF-8."
        raise StudyError(path, [(line, what)]) from None
    except OSError as error:
        raise UsageError(f"Cannot read the study {path}: {error.strerror}.") from None
    return read_study(text, file=path)


def find_study(source: Path | str) -> Path:
    """Where a study lies: a path, or the name of one that ships."""
    path = Path(source)
    if path.is_file():
        return path
    shipped = {shipped.stem: shipped for shipped in shipped_studies()}
    if str(source) in shipped:
        return shipped[str(source)]
    if path.is_dir():
        raise UsageError(f"{path} is a folder; a study is a YAML file.")
    close = difflib.get_close_matches(str(source), shipped, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise UsageError(
        f"No study {str(source)!r}: there is no such file, and the studies that ship are "
        f"{', '.join(sorted(shipped))}.{hint} `beacon new FILE` writes one to start from."
    )


def shipped_studies() -> list[Path]:
    """The studies that ship with Beacon."""
    folder = Path(str(resources.files("beacon") / "studies"))
    return sorted(folder.glob("*.yaml"))


def read_study(text: str, *, file: Path | str = "study") -> Study:
    """A study from YAML text; raises a `StudyError` that lists every mistake."""
    tree = _parse_yaml(text, file)
    reader = _Reader(Path(file).parent)
    study = reader.study(tree)
    if study is None or reader.mistakes:
        raise StudyError(file, sorted(reader.mistakes, key=lambda mistake: mistake[0] or 0))
    return study


class _Constructor(RoundTripConstructor):
    """The core schema of YAML 1.2, in which a date is text."""


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", RoundTripConstructor.construct_yaml_str)


_PARSER_ERRORS: Final = (
    YAMLError,
    # What the parser lets through, such as of a value that its tag does not fit: `!!int x`.
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


def _parse_yaml(text: str, file: Path | str) -> CommentedMap:
    yaml = YAML(typ="rt")
    yaml.version = (1, 2)
    yaml.Constructor = _Constructor
    try:
        tree = yaml.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise StudyError(file, [(line, _yaml_problem(error))]) from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"is not valid YAML: {str(error).splitlines()[0]}; take it out."
        raise StudyError(file, [(line, what)]) from None
    except _PARSER_ERRORS as error:
        raise StudyError(file, [(None, f"is not valid YAML: {error}.")]) from None
    if not isinstance(tree, CommentedMap):
        raise StudyError(
            file, [(1, "is not a study: it must be a mapping that begins with `beacon: 1`.")]
        )
    return tree


def _yaml_problem(error: MarkedYAMLError) -> str:
    problem = (error.problem or "is not YAML").strip()
    if "found duplicate key" in problem:
        key = re.search(r'duplicate key "([^"]*)"', problem)
        return f"the key {key.group(1) if key else ''!r} stands twice; keep one of them."
    return f"is not valid YAML: {problem}."


class _Reader:
    """Turns a YAML tree into records, and gathers mistakes with their lines as it goes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.mistakes: list[tuple[int | None, str]] = []

    def study(self, tree: CommentedMap) -> Study | None:
        lists = {name: self._list(tree, name) for name in LISTS if name in tree}
        study = self.record(tree, Study, "", given=lists)
        self._check_ids(tree, lists)
        if study is not None and not self.mistakes:
            self._check_references(tree, study)
        return study

    def record(
        self, node: Any, kind: type[T], where: str, *, given: dict[str, Any] | None = None
    ) -> T | None:
        """`node` as a `kind`, or None with the mistakes noted; `given` fields are already read."""
        values = dict(given or {})
        n_before = len(self.mistakes)
        fields = fields_of(kind)
        for key in node:
            if key not in fields:
                self._say(node, key, _unknown_key(str(key), list(fields), where))
            elif key not in values:
                values[key] = self._value(node, key, fields[key].type, where)
        for name, field in fields.items():
            if field.required and name not in node:
                self._say_at(_line(node), f"{_in(where)}the key {name!r} is missing; add it.")
        return kind(**values) if len(self.mistakes) == n_before else None

    def _value(self, node: CommentedMap, key: str, kind: Any, where: str) -> Any:
        value = node[key]
        nested = _struct_of(kind)
        if nested is not None and isinstance(value, CommentedMap):
            return self.record(value, nested, f"{where}.{key}" if where else key)
        try:
            return msgspec.convert(_plain(value), type=kind)
        except msgspec.ValidationError as error:
            self._say(node, key, f"{_in(where)}{key}: {_friendly(str(error), kind)}")
            return None

    def _list(self, tree: CommentedMap, name: str) -> tuple[Any, ...]:
        node = tree[name]
        if name == "framings" and isinstance(node, CommentedMap):
            node = _framings_as_list(node)
        if name == "questions" and isinstance(node, str):
            return self._questions_in(tree, self._folder / node)
        if not isinstance(node, CommentedSeq):
            shape = "a mapping of id to system prompt" if name == "framings" else "a list"
            self._say(tree, name, f"{name}: expected {shape}, got {_kind_of(_plain(node))}.")
            return ()
        if not node and name in NEVER_EMPTY:
            self._say(tree, name, f"{name}: is empty; give at least one.")
        items: list[Record | None] = []
        for index, item in enumerate(node):
            where = f"{name}[{index}]"
            if name == "models" and isinstance(item, str):
                item = CommentedMap(spec=item)
                item.lc.line = node.lc.data[index][0]
            if not isinstance(item, CommentedMap):
                self._say_at(
                    _line(node, index),
                    f"{where}: expected a mapping, got {_kind_of(_plain(item))}.",
                )
                items.append(None)
                continue
            items.append(self.record(item, LISTS[name], where))
        return tuple(items)

    def _questions_in(self, tree: CommentedMap, path: Path) -> tuple[Any, ...]:
        try:
            return read_questions(path)
        except StudyError:
            raise  # mistakes in the other file, with its lines
        except UsageError as error:
            self._say(tree, "questions", f"questions: {error}")
            return ()

    def _check_ids(self, tree: CommentedMap, lists: dict[str, tuple[Any, ...]]) -> None:
        for name, records in lists.items():
            seen: set[str] = set()
            for index, record in enumerate(records):
                if record is None:
                    continue
                key = record.label if isinstance(record, ModelEntry) else record.id
                if key in seen:
                    what = "name" if name == "models" else "id"
                    fix = "give one of them a `name`" if name == "models" else "change one of them"
                    self._say_at(
                        _line(tree[name], index), f"{name}: the {what} {key!r} stands twice; {fix}."
                    )
                seen.add(key)
                if isinstance(record, ModelEntry):
                    self._check_spec(tree, index, record)

    def _check_spec(self, tree: CommentedMap, index: int, entry: ModelEntry) -> None:
        try:
            parse_spec(entry.spec)
            if entry.url:
                check_url(entry.url)
        except UsageError as error:
            self._say_at(_line(tree["models"], index), f"models[{index}]: {error}")

    def _check_references(self, tree: CommentedMap, study: Study) -> None:
        framings = [framing.id for framing in study.framings]
        questions = [question.id for question in study.questions]
        if study.baseline and study.baseline not in framings:
            self._say(tree, "baseline", _no_such("baseline", study.baseline, framings))
        for index, item in enumerate(study.expectations):
            line = _line(tree["expectations"], index)
            where = f"expectations[{index}]"
            for name in item.questions:
                if name not in questions:
                    self._say_at(line, _no_such(f"{where}.questions", name, questions))
            for name in item.framings:
                if name not in framings:
                    self._say_at(line, _no_such(f"{where}.framings", name, framings))
            if item.claim in CLAIMS_ON_A_CATEGORY and item.category is None:
                self._say_at(line, f"{where}: the claim {item.claim!r} needs a `category`.")
            if item.claim not in CLAIMS_ON_A_CATEGORY and item.category is not None:
                self._say_at(line, f"{where}: the claim {item.claim!r} takes no `category`.")

    def _say(self, node: CommentedMap, key: Any, what: str) -> None:
        self._say_at(_line(node, key), what)

    def _say_at(self, line: int | None, what: str) -> None:
        self.mistakes.append((line, what))


def _framings_as_list(node: CommentedMap) -> CommentedSeq:
    """`id: system prompt` lines as a list of framings, each at its own line."""
    listed = CommentedSeq()
    for index, (key, system) in enumerate(node.items()):
        item = CommentedMap(id=key, system=system)
        line = node.lc.data.get(key, [node.lc.line])[0]  # a merged key has no line of its own
        item.lc.line = line
        item.lc.data = {"id": [line, 0, line, 0], "system": [line, 0, line, 0]}
        listed.append(item)
        listed.lc.data = {**(listed.lc.data or {}), index: [line, 0]}
    return listed


def _line(node: Any, key: Any = None) -> int | None:
    """The line, counted from 1, on which a key or item stands; the node's own without a key."""
    places = node.lc.data or {}
    if key is not None and key in places:
        return int(places[key][0]) + 1
    return None if node.lc.line is None else int(node.lc.line) + 1


def _plain(value: Any) -> Any:
    """YAML's decorated values as plain ones; tags are ignored, and lone surrogates replaced."""
    if isinstance(value, CommentedMap):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, CommentedSeq):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str | TaggedScalar):
        return storable(str(value))
    for kind in (int, float):
        if isinstance(value, kind):
            return kind(value)
    return value


def _struct_of(kind: Any) -> type[Record] | None:
    options = get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    for option in options:
        if isinstance(option, type) and issubclass(option, Record):
            return option
    return None


def _in(where: str) -> str:
    return f"{where}: " if where else ""


def _unknown_key(key: str, known: list[str], where: str) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(known)}."
    return f"{_in(where)}unknown key {key!r}.{hint}"


def _no_such(where: str, name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(known)}."
    return f"{where}: there is no {name!r}.{hint}"


_WORDS: Final = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
_ARTICLES: Final = re.compile(r"`(\w+)(?: \| null)?`")


def _kind_of(value: Any) -> str:
    names = {dict: "object", list: "array", type(None): "null"}
    return _WORDS.get(names.get(type(value), type(value).__name__), type(value).__name__)


def _choices(kind: Any) -> list[str]:
    """The values that a closed set offers, inside an optional too."""
    if get_origin(kind) is Literal:
        return [str(value) for value in get_args(kind)]
    return [choice for option in get_args(kind) for choice in _choices(option)]


def _description(kind: Any) -> str | None:
    """What a type says of itself, inside a list or an optional too."""
    for meta in getattr(kind, "__metadata__", ()):
        if meta.description:
            return str(meta.description)
    return next(filter(None, map(_description, get_args(kind))), None)


def _friendly(message: str, kind: Any) -> str:
    """A validation message in the words of a study file, with the fix where it is plain."""
    message, _, place = message.partition(" - at ")
    friendly = _ARTICLES.sub(lambda match: _WORDS.get(match.group(1), match.group(1)), message)
    friendly = friendly[:1].lower() + friendly[1:]
    fix = ""
    if "matching regex" in message:
        friendly = _description(kind) or friendly
    elif "length >= 1" in message or "got `null`" in message:
        friendly, fix = "is empty", "; write something, or leave it out"
    elif "Invalid enum value" in message:
        given = message.partition("value ")[2]
        friendly = f"{given} is none of {', '.join(_choices(kind))}"
    elif re.match(r"Expected `str.*got `(int|float|bool)`", message):
        fix = "; put it in quotes"
    inside = place.strip("`").removeprefix("$")
    return f"{friendly}{f' at {inside}' if inside else ''}{fix}."
