"""1  A study becomes calls; before any is sent, what they will take in tokens, time and money."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from beacon.records import Call, Record
from beacon.spec import parse_spec
from beacon.study import ModelEntry, Study

CHARACTERS_PER_TOKEN: Final = 4.0
"""A rough rule for English; text in other scripts is counted one token a character."""
TOKENS_AROUND_A_MESSAGE: Final = 8
TYPICAL_COMPLETION: Final = 350
"""Tokens of a typical answer, where the token limit does not make it shorter."""
TOKENS_PER_SECOND: Final = 50.0
"""What one connection is taken to write each second, where nothing better is known."""
LOCAL_LIMIT: Final = 1
HTTP_LIMIT: Final = 16


class ModelPlan(Record, frozen=True, kw_only=True):
    """What asking one model will take. All but the counts are estimates."""

    model: str
    spec: str
    n_calls: int
    prompt_tokens: int
    completion_tokens: int
    """For answers of typical length."""
    most_completion_tokens: int | None
    """If every answer ran to the token limit; None without one."""
    seconds: float
    cost: float | None
    """None where the study gives no price."""
    most_cost: float | None
    currency: str | None
    left_out: tuple[str, ...]
    """Sampling that the study asks for and the provider does not take."""


class Plan(Record, frozen=True, kw_only=True):
    """What a study will take."""

    study: str
    n_questions: int
    n_framings: int
    repeats: int
    n_calls: int
    models: tuple[ModelPlan, ...]
    tokens_per_second: float
    """The speed that the times assume for each connection."""

    @property
    def seconds(self) -> float:
        """How long it will take: models are asked side by side."""
        return max(model.seconds for model in self.models)


def calls(study: Study, entry: ModelEntry) -> Iterator[Call]:
    """The calls for one model, lazily: controls first, then one repeat after another.

    In this order a run that is stopped early is still balanced over framings and questions.
    """
    questions = sorted(study.questions, key=lambda question: not question.control)
    for repeat in range(study.repeats):
        sampling = study.sampling_for(entry, repeat)
        for question in questions:
            for framing in study.framings:
                yield Call(
                    question_id=question.id,
                    framing_id=framing.id,
                    model=entry.label,
                    spec=entry.spec,
                    system=framing.system,
                    prompt=question.text,
                    sampling=sampling,
                    body=entry.body,
                    repeat=repeat,
                )


def plan(study: Study, *, tokens_per_second: float = TOKENS_PER_SECOND) -> Plan:
    """What `study` will take. Nothing is sent."""
    return Plan(
        study=study.name,
        n_questions=len(study.questions),
        n_framings=len(study.framings),
        repeats=study.repeats,
        n_calls=study.n_calls,
        models=tuple(_plan_model(study, entry, tokens_per_second) for entry in study.models),
        tokens_per_second=tokens_per_second,
    )


def estimate_tokens(text: str) -> int:
    """About how many tokens `text` is, without a tokenizer."""
    n_plain = sum(1 for character in text if character.isascii())
    return round(n_plain / CHARACTERS_PER_TOKEN) + len(text) - n_plain


def _plan_model(study: Study, entry: ModelEntry, tokens_per_second: float) -> ModelPlan:
    spec = parse_spec(entry.spec)
    sampling = study.sampling_for(entry)
    n_calls = len(study.questions) * len(study.framings) * study.repeats
    prompt = study.repeats * sum(
        estimate_tokens(framing.system) + estimate_tokens(question.text) + TOKENS_AROUND_A_MESSAGE
        for framing in study.framings
        for question in study.questions
    )
    typical = n_calls * min(TYPICAL_COMPLETION, sampling.max_tokens or TYPICAL_COMPLETION)
    most = None if sampling.max_tokens is None else n_calls * sampling.max_tokens
    at_once = entry.limit or (HTTP_LIMIT if spec.kind == "http" else LOCAL_LIMIT)
    asked_for = {
        name for name in ("seed", "logprobs", "stop") if getattr(sampling, name) not in (None, ())
    }
    return ModelPlan(
        model=entry.label,
        spec=entry.spec,
        n_calls=n_calls,
        prompt_tokens=prompt,
        completion_tokens=typical,
        most_completion_tokens=most,
        seconds=typical / tokens_per_second / min(at_once, n_calls),
        cost=_cost(entry, prompt, typical),
        most_cost=_cost(entry, prompt, most),
        currency=entry.price.currency if entry.price else None,
        left_out=tuple(sorted(asked_for & set(spec.preset.unsupported if spec.preset else ()))),
    )


def _cost(entry: ModelEntry, prompt: int, completion: int | None) -> float | None:
    if entry.price is None or completion is None:
        return None
    return (prompt * entry.price.input + completion * entry.price.output) / 1_000_000
