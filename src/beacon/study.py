"""The study: what to ask, in which framings, of which models, how often, and what is expected."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from beacon.ids import content_id
from beacon.records import Category, Record, Sampling

Id = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:@-]*\Z",
        max_length=80,
        description="an id is made of letters, digits and any of _ . : @ -, and starts with none "
        "of those signs",
    ),
]
VariableName = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?\Z",
        description="expected the name of an environment variable, not the key itself: letters, "
        "digits and _",
    ),
]
Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, le=1e9)]
Amount = Annotated[float, Meta(ge=0, le=1e9)]
"""Bounded, as `Seconds` are: JSON, in which a study is stored, can't carry infinity."""

Claim = Literal[
    "all_are",
    "most_are",
    "some_are",
    "none_are",
    "same_in_all_framings",
    "differs_between_framings",
    "longer_than_baseline",
    "differs_more_than_controls",
]
CLAIMS_ON_A_CATEGORY = frozenset({"all_are", "most_are", "some_are", "none_are"})


class Framing(Record, frozen=True, kw_only=True):
    """A system prompt under test."""

    id: Id
    system: str
    """Empty means that no system prompt is sent."""


class Question(Record, frozen=True, kw_only=True):
    """One thing to ask."""

    id: Id
    text: Text
    topic: str = ""
    language: str = "en"
    expected: tuple[Text, ...] = ()
    """Answers that count as right."""
    control: bool = False
    """A question that any working model answers: it tests the set-up, not the model's views."""


class Price(Record, frozen=True, kw_only=True):
    """What a million tokens cost."""

    input: Amount
    output: Amount
    currency: str = "USD"


class Timeouts(Record, frozen=True, kw_only=True):
    """Seconds to wait: for a connection, for the first byte of the reply, for all of it."""

    connect: Seconds = 10.0
    first_byte: Seconds = 120.0
    whole: Seconds = 300.0


class ModelEntry(Record, frozen=True, kw_only=True):
    """A model to ask."""

    spec: Text
    """See `beacon.spec`."""
    name: str = ""
    """What reports call it; the spec if not given."""
    sampling: Sampling = Sampling()
    limit: Count | None = None
    """How many calls may be under way at once."""
    price: Price | None = None
    timeouts: Timeouts = Timeouts()
    url: str = ""
    """Another address for a preset's server."""
    key_env: VariableName = ""
    """The environment variable that holds the key, where it is not the preset's."""
    body: dict[str, Any] = msgspec.field(default_factory=dict)
    """Further fields for the request, such as an aggregator's choice of upstream host."""
    caution: str = ""
    """What a reader must know before believing anything about this model."""

    @property
    def label(self) -> str:
        """The name that identifies the model in a run."""
        return self.name or self.spec


class Expectation(Record, frozen=True, kw_only=True):
    """Something that was expected before asking; the report says whether it was met."""

    id: Id
    says: Text
    claim: Claim
    models: tuple[Text, ...] = ()
    """Names of models that it is about, such as `Qwen 2.5-1.5B`; none means every model."""
    questions: tuple[Id, ...] = ()
    """Ids; none means every question that is not a control."""
    framings: tuple[Id, ...] = ()
    """Ids; none means every framing."""
    category: Category | None = None
    source: str = ""


class Study(Record, frozen=True, kw_only=True):
    """What to ask, how to phrase it, whom to ask, how often."""

    beacon: Literal[1]
    """The version of this file's form."""
    name: Id
    title: str = ""
    description: str = ""
    framings: tuple[Framing, ...]
    baseline: str = ""
    """The framing that others are compared with; the first if not given."""
    questions: tuple[Question, ...]
    models: tuple[ModelEntry, ...]
    sampling: Sampling = Sampling()
    """For every model, unless the model has its own."""
    repeats: Count = 1
    expectations: tuple[Expectation, ...] = ()

    @property
    def id(self) -> str:
        """The study's identity, from all of its content."""
        return content_id("s1", self)

    @property
    def baseline_id(self) -> str:
        """The id of the framing that others are compared with."""
        return self.baseline or self.framings[0].id

    @property
    def n_calls(self) -> int:
        """How many calls it makes."""
        return len(self.questions) * len(self.framings) * len(self.models) * self.repeats

    def sampling_for(self, entry: ModelEntry, repeat: int = 0) -> Sampling:
        """How `entry` is to answer at `repeat`: each repeat has a seed of its own."""
        merged = entry.sampling.over(self.sampling)
        if merged.seed is None:
            return merged
        return msgspec.structs.replace(merged, seed=merged.seed + repeat)

    def changed(
        self, *, models: tuple[ModelEntry, ...] | None = None, repeats: int | None = None
    ) -> Study:
        """This study asked of other models, or more often."""
        return msgspec.structs.replace(
            self,
            models=self.models if models is None else models,
            repeats=self.repeats if repeats is None else repeats,
        )

    def grew_from(self, older: Study) -> bool:
        """Whether a run of `older` can go on as this: it may ask more, and nothing else.

        What does not reach a model (titles, prices, limits, expectations) may change.
        """
        kept = {entry.label: self._asked_of(entry) for entry in self.models}
        return (
            self.name == older.name
            and self.framings == older.framings
            and self.questions == older.questions
            and self.repeats >= older.repeats
            and all(kept.get(entry.label) == older._asked_of(entry) for entry in older.models)
        )

    def _asked_of(self, entry: ModelEntry) -> tuple[Any, ...]:
        return entry.spec, entry.url, entry.body, self.sampling_for(entry)
