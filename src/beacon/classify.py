"""4  Responses become labels: status first, then the text, then the control.

A response that only says "I can't help you with that" means a wrong prompt structure, unless the
same model in the same framing answered the control question: then it refused. Such labels wait
until the controls are in.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from beacon.errors import UsageError
from beacon.records import Evidence, Label, Reply, Response, Stored, storable
from beacon.status import Status, status_of

if TYPE_CHECKING:
    from beacon.store import Store
    from beacon.study import Study


class Classifier(Protocol):
    """Reads texts that came without any technical trouble."""

    name: str
    """With its version, as in `reference@1`; what can change a label changes the version."""

    def label(self, texts: Sequence[str], questions: Sequence[str | None]) -> list[Label]:
        """A label for each text; `questions` are what was asked, where known."""
        ...


CLASSIFIERS: Final = {"reference": "beacon.classifiers.reference:ReferenceClassifier"}
DEFAULT_CLASSIFIER: Final = "reference"
WRONG_PROMPT: Final = "wrong_prompt"
CONTROL_ANSWERED: Final = "control_answered"
UNANSWERED_RULES: Final = frozenset(
    {WRONG_PROMPT, "technical_phrase", "error_message", "refusal_phrase"}
)
"""Rules that mean that a control was not answered. A short text is still an answer to it."""


@cache
def load_classifier(name: str) -> Classifier:
    """The classifier called `name`."""
    if name not in CLASSIFIERS:
        close = difflib.get_close_matches(name, CLASSIFIERS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise UsageError(f"No classifier {name!r}.{hint} Known: {', '.join(sorted(CLASSIFIERS))}.")
    module, _, attribute = CLASSIFIERS[name].partition(":")
    made: Classifier = getattr(import_module(module), attribute)()
    return made


def classify(
    text: str,
    *,
    question: str | None = None,
    finish_reason: str | None = None,
    classifier: str = DEFAULT_CLASSIFIER,
) -> Label:
    """The label of one text, as if a model had replied with it.

    >>> classify("HTTP 404: modal-http: invalid function call").category
    'technical_failure'
    """
    reply = Reply(text=storable(text), finish_reason=finish_reason)
    return label_responses([reply], [question], load_classifier(classifier))[0]


def label_responses(
    responses: Sequence[Response], questions: Sequence[str | None], classifier: Classifier
) -> list[Label]:
    """A label for each response, by status where that decides and else by its text."""
    statuses = [status_of(response) for response in responses]
    to_read = [i for i, status in enumerate(statuses) if status.category is None]
    texts = [_text(responses[i]) for i in to_read]
    read = iter(classifier.label(texts, [questions[i] for i in to_read]))
    return [
        _by_status(response, status, classifier)
        if status.category
        else _declared(response, next(read))
        for response, status in zip(responses, statuses, strict=True)
    ]


def _by_status(response: Response, status: Status, classifier: Classifier) -> Label:
    assert status.category is not None
    return Label(
        category=status.category,
        layer=status.layer,
        length=len(_text(response)),
        evidence=(Evidence(rule=status.kind, detail=status.detail),),
        classifier=classifier.name,
    )


def _declared(response: Response, label: Label) -> Label:
    """A text that the server itself marked as a refusal is one, whatever its words."""
    if not (isinstance(response, Reply) and response.is_declared_refusal):
        return label
    declared = Evidence(rule="declared_refusal", detail="the server marked the text as a refusal")
    return msgspec.structs.replace(
        label, category="content_refusal", evidence=(declared, *label.evidence)
    )


def _text(response: Response) -> str:
    return response.text if isinstance(response, Reply) else ""


class RunClassifier:
    """Labels a run's responses as they come in, and settles what the controls decide at the end."""

    def __init__(self, store: Store, study: Study, classifier: Classifier) -> None:
        self._store = store
        self._questions = {question.id: question.text for question in study.questions}
        self._controls = {question.id for question in study.questions if question.control}
        self._classifier = classifier
        self.instrument_id = store.add_instrument("classifier", classifier.name, datetime.now(UTC))

    def label_group(self, group: Sequence[Stored]) -> list[Label | None]:
        """Label and store a group; None stands for a label that has to wait for the controls."""
        labels = self._label(group)
        ready = [
            (stored.id, label)
            for stored, label in zip(group, labels, strict=True)
            if label.rule != WRONG_PROMPT
        ]
        self._store.append_labels(self.instrument_id, ready)
        return [None if label.rule == WRONG_PROMPT else label for label in labels]

    def finish(self) -> int:
        """Label all that is left, then settle what the controls decide; returns how many."""
        n_labelled = 0
        for group in self._store.unlabelled(self.instrument_id):
            labels = self._label(group)
            rows = [(stored.id, label) for stored, label in zip(group, labels, strict=True)]
            self._store.append_labels(self.instrument_id, rows)
            n_labelled += len(group)
        self._settle_by_controls()
        return n_labelled

    def _label(self, group: Sequence[Stored]) -> list[Label]:
        questions = [self._questions.get(stored.question_id) for stored in group]
        return label_responses([stored.response for stored in group], questions, self._classifier)

    def _settle_by_controls(self) -> None:
        """Add a new label wherever the control's answer changes what a response means."""
        waiting = self._store.by_rule(self.instrument_id, (WRONG_PROMPT, CONTROL_ANSWERED))
        if not waiting:
            return
        answered = self._answered_controls()
        changed = []
        for stored, label in waiting:
            is_answered = (stored.model, stored.framing_id) in answered
            is_control = stored.question_id in self._controls
            settled = by_control(label, is_answered=is_answered and not is_control)
            if settled != label:
                changed.append((stored.id, settled))
        self._store.append_labels(self.instrument_id, changed)

    def _answered_controls(self) -> set[tuple[str, str]]:
        """The models and framings whose control question was answered at least once."""
        return self._store.answered(
            self.instrument_id, self._controls, unanswered_rules=UNANSWERED_RULES
        )


def by_control(label: Label, *, is_answered: bool) -> Label:
    """A wrong-prompt label, settled: a refusal where the control was answered, else a failure."""
    evidence = tuple(item for item in label.evidence if item.rule != CONTROL_ANSWERED)
    if not is_answered:
        return msgspec.structs.replace(label, category="technical_failure", evidence=evidence)
    control = Evidence(
        rule=CONTROL_ANSWERED,
        detail="the same model in the same framing answered the control question, so the prompt "
        "structure works and this is a refusal",
    )
    return msgspec.structs.replace(label, category="content_refusal", evidence=(control, *evidence))
