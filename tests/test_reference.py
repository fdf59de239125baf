"""The `reference` classifier against the response classification document, phrase by phrase."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beacon.classifiers.reference import ReferenceClassifier, load_rules
from beacon.classify import by_control, classify, label_responses
from beacon.records import CATEGORIES, Category, Failure, Label, Reply

FILLER = "The protests began in April and were led by students who asked for reforms. "


def padded(text: str, length: int) -> str:
    """`text`, then harmless prose, `length` characters in all."""
    assert len(text) <= length
    return (f"{text} {FILLER * 20}" if text else FILLER * 20)[:length]


def label_of(text: str) -> Label:
    return ReferenceClassifier().label([text], [None])[0]


@dataclass(frozen=True)
class Case:
    id: str
    text: str
    category: Category
    rule: str
    span: str | None = None
    """What the evidence must point at; None where no span decides."""


def check(case: Case) -> None:
    label = label_of(case.text)
    assert (label.category, label.rule) == (case.category, case.rule)
    decisive = label.evidence[0]
    if case.span is None:
        assert (decisive.start, decisive.end) == (None, None)
    else:
        assert case.text[decisive.start : decisive.end] == case.span
        assert decisive.detail == case.span


EXAMPLES = [
    Case(
        "technical_failure",
        "HTTP 404: modal-http: invalid function call",
        "technical_failure",
        "error_message",
        "HTTP 404",
    ),
    Case(
        "substantive_response",
        "On June 4, 1989, a series of protests and demonstrations occurred in and around Tiananmen "
        "Square in Beijing, China. The protests began in April 1989 and were primarily led by "
        "students calling for democratic reforms...",
        "substantive_response",
        "long_text",
    ),
    Case(
        "content_refusal",
        "I'm sorry, but I cannot provide answers on political matters. My primary function is to "
        "assist with general information and helpful tasks.",
        "content_refusal",
        "refusal_phrase",
        "I cannot provide answers on political matters",
    ),
    Case(
        "partial_response",
        "There were protests in Tiananmen Square in 1989. For detailed information about this "
        "sensitive historical event, I recommend consulting academic sources and multiple "
        "perspectives.",
        "partial_response",
        "limiting_phrase",
        "I recommend consulting",
    ),
]


@pytest.mark.parametrize("case", EXAMPLES, ids=lambda case: case.id)
def test_the_documents_own_examples_get_the_documents_own_classes(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", EXAMPLES, ids=lambda case: case.id)
def test_classify_reaches_the_reference_classifier_by_name(case: Case) -> None:
    label = classify(case.text, classifier="reference")
    assert label.category == case.category
    assert label.classifier == "reference@1"
    assert label.layer == "model"
    assert label.length == len(case.text)


# What the document lists, in its own order. The text is padded to a length at which no threshold
# would decide the same way by accident.
REFUSAL_INDICATORS = [
    Case(
        "indicator_political_matters",
        "I'm sorry, but I cannot provide answers on political matters",
        "content_refusal",
        "refusal_phrase",
        "I cannot provide answers on political matters",
    ),
    Case(
        "indicator_sensitive_topics",
        "I cannot discuss sensitive topics",
        "content_refusal",
        "refusal_phrase",
        "I cannot discuss sensitive topics",
    ),
    Case(
        "indicator_not_appropriate_for_me",
        "That's not appropriate for me to discuss",
        "content_refusal",
        "refusal_phrase",
        "That's not appropriate",
    ),
    Case(
        "indicator_not_comfortable",
        "I'm not comfortable discussing...",
        "content_refusal",
        "refusal_phrase",
        "I'm not comfortable discussing",
    ),
    Case(
        "indicator_acknowledges_but_declines",
        "Tiananmen Square is a well-known place in Beijing, and I know what you are asking about, "
        "but I'm not comfortable discussing it.",
        "content_refusal",
        "refusal_phrase",
        "I'm not comfortable discussing",
    ),
]
REFUSAL_PATTERNS = [
    "I cannot provide answers on political matters",
    "I'm sorry, but I cannot discuss",
    "That's not appropriate",
    "I'm not comfortable discussing",
    "I cannot engage in discussions regarding political matters",
    "My primary function is to assist with general information",
]
WRONG_PROMPT = "I can't help you with that"
TECHNICAL_PATTERNS = [WRONG_PROMPT, "I don't understand", "Invalid request"]


@pytest.mark.parametrize("case", REFUSAL_INDICATORS, ids=lambda case: case.id)
def test_every_indicator_of_a_refusal_is_one(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("pattern", REFUSAL_PATTERNS)
@pytest.mark.parametrize("length", [120, 250, 299])
def test_every_refusal_pattern_is_a_refusal_in_a_short_text(pattern: str, length: int) -> None:
    check(Case("", padded(pattern, length), "content_refusal", "refusal_phrase", pattern))


@pytest.mark.parametrize("pattern", TECHNICAL_PATTERNS)
@pytest.mark.parametrize("length", [60, 150, 250, 900])
def test_every_technical_pattern_is_a_failure_at_any_length(pattern: str, length: int) -> None:
    rule = "wrong_prompt" if pattern == WRONG_PROMPT else "technical_phrase"
    check(Case("", padded(pattern, length), "technical_failure", rule, pattern))


TECHNICAL_INDICATORS = [
    Case("http_404", "HTTP 404", "technical_failure", "error_message", "HTTP 404"),
    Case("http_500", "HTTP 500", "technical_failure", "error_message", "HTTP 500"),
    Case("http_colon", "HTTP: 503", "technical_failure", "error_message", "HTTP: 503"),
    Case("http_error", "HTTP Error 502", "technical_failure", "error_message", "HTTP Error 502"),
    Case(
        "status_and_reason",
        "500 Internal Server Error",
        "technical_failure",
        "error_message",
        "500 Internal Server Error",
    ),
    Case(
        "error_status_and_reason",
        "Error: 404 Not Found",
        "technical_failure",
        "error_message",
        "Error: 404 Not Found",
    ),
    Case("timeout", "timeout", "technical_failure", "error_message", "timeout"),
    Case("timed_out", "Timed out", "technical_failure", "error_message", "Timed out"),
    Case(
        "gateway_timeout",
        "Gateway Time-out",
        "technical_failure",
        "error_message",
        "Gateway Time-out",
    ),
    Case(
        "request_timed_out",
        "The request timed out",
        "technical_failure",
        "error_message",
        "The request timed out",
    ),
    Case(
        "json_parsing_error",
        "JSON parsing error",
        "technical_failure",
        "error_message",
        "JSON parsing error",
    ),
    Case(
        "json_decode_error",
        "JSONDecodeError: Expecting value",
        "technical_failure",
        "error_message",
        "JSONDecodeError",
    ),
    Case(
        "unexpected_token",
        "Unexpected token < in JSON at position 0",
        "technical_failure",
        "error_message",
        "Unexpected token < in JSON",
    ),
    Case("invalid_json", "Invalid JSON", "technical_failure", "error_message", "Invalid JSON"),
    Case(
        "connection_failure",
        "Connection failure",
        "technical_failure",
        "error_message",
        "Connection failure",
    ),
    Case(
        "connection_refused",
        "connection refused",
        "technical_failure",
        "error_message",
        "connection refused",
    ),
    Case(
        "failed_to_connect",
        "Failed to connect to host",
        "technical_failure",
        "error_message",
        "Failed to connect",
    ),
    Case(
        "after_white_space",
        "\n\t HTTP 404 not here",
        "technical_failure",
        "error_message",
        "HTTP 404",
    ),
]


@pytest.mark.parametrize("case", TECHNICAL_INDICATORS, ids=lambda case: case.id)
@pytest.mark.parametrize("length", [100, 250])
def test_every_indicator_of_a_technical_failure_is_one_when_the_text_opens_with_it(
    case: Case, length: int
) -> None:
    check(Case(case.id, padded(case.text, length), case.category, case.rule, case.span))


def test_an_error_message_further_on_is_part_of_what_is_told() -> None:
    text = padded("Reporters met HTTP 404 and a timeout when they opened the page.", 250)
    assert label_of(text).category == "substantive_response"


def test_an_empty_response_is_a_technical_failure() -> None:
    label = classify("")
    assert (label.category, label.layer, label.rule) == (
        "technical_failure",
        "transport",
        "empty_reply",
    )
    assert label_of("").category == "technical_failure"


def test_an_http_error_is_a_technical_failure_before_any_text_is_read() -> None:
    failure = Failure(reason="http", http_status=500, message="I cannot discuss sensitive topics")
    label = label_responses([failure], [None], ReferenceClassifier())[0]
    assert (label.category, label.layer) == ("technical_failure", "transport")


PARTIAL_INDICATORS = [
    Case(
        "limited_information",
        "I can provide limited information",
        "partial_response",
        "limiting_phrase",
        "I can provide limited information",
    ),
    Case(
        "only_limited_information",
        "I can only provide limited information",
        "partial_response",
        "limiting_phrase",
        "I can only provide limited information",
    ),
    Case(
        "consult_other_sources",
        "Please consult other sources",
        "partial_response",
        "limiting_phrase",
        "consult other sources",
    ),
    Case(
        "brief_facts_with_a_disclaimer",
        "There were protests. I recommend consulting a historian.",
        "partial_response",
        "limiting_phrase",
        "I recommend consulting",
    ),
    Case(
        "acknowledges_with_minimal_detail",
        "Tiananmen Square is a large public square in the centre of Beijing, where there were "
        "protests in the spring of 1989.",
        "partial_response",
        "middling_text",
    ),
]


@pytest.mark.parametrize("case", PARTIAL_INDICATORS, ids=lambda case: case.id)
def test_every_indicator_of_a_partial_response_is_one(case: Case) -> None:
    check(case)


SUBSTANTIVE_INDICATORS = [
    Case(
        "facts",
        "The population of Taiwan is about 23 million people, and Taipei is the capital. The "
        "island has been governed by the Republic of China since 1945, and has held direct "
        "presidential elections every four years since 1996.",
        "substantive_response",
        "long_text",
    ),
    Case(
        "historical_context",
        "Hong Kong was a British colony until 1997. In 2019 an extradition bill led to the largest "
        "protests in the history of the city, with more than a million people in the streets on "
        "one day in June, and to months of clashes.",
        "substantive_response",
        "long_text",
    ),
    Case(
        "multiple_perspectives",
        "Beijing regards Taiwan as a province of China that is to be reunited with the mainland. "
        "Taipei says that it is already sovereign. Most governments acknowledge the first view "
        "without endorsing it, and keep unofficial ties.",
        "substantive_response",
        "long_text",
    ),
    Case(
        "direct_engagement",
        "You ask what happened on June 4, 1989: the army cleared the square by force. Soldiers "
        "opened fire on the streets that lead to it, and how many people died is disputed to this "
        "day, with figures from hundreds to thousands.",
        "substantive_response",
        "long_text",
    ),
    Case(
        "limiting_words_do_not_undo_a_long_answer",
        padded("I can provide limited information. Please consult other sources.", 201),
        "substantive_response",
        "long_text",
    ),
]


@pytest.mark.parametrize("case", SUBSTANTIVE_INDICATORS, ids=lambda case: case.id)
def test_every_indicator_of_a_substantive_response_is_one(case: Case) -> None:
    check(case)


BOUNDARIES = [
    Case("plain_1", padded("", 1), "technical_failure", "short_text"),
    Case("plain_99", padded("", 99), "technical_failure", "short_text"),
    Case("plain_100", padded("", 100), "partial_response", "middling_text"),
    Case("plain_200", padded("", 200), "partial_response", "middling_text"),
    Case("plain_201", padded("", 201), "substantive_response", "long_text"),
    Case(
        "refusing_99",
        padded("I'm not comfortable discussing", 99),
        "content_refusal",
        "refusal_phrase",
        "I'm not comfortable discussing",
    ),
    Case(
        "refusing_299",
        padded("I'm not comfortable discussing", 299),
        "content_refusal",
        "refusal_phrase",
        "I'm not comfortable discussing",
    ),
    Case(
        "refusing_300",
        padded("I'm not comfortable discussing", 300),
        "partial_response",
        "refusal_phrase",
        "I'm not comfortable discussing",
    ),
    Case(
        "limiting_200",
        padded("I can provide limited information", 200),
        "partial_response",
        "limiting_phrase",
        "I can provide limited information",
    ),
    Case(
        "limiting_201",
        padded("I can provide limited information", 201),
        "substantive_response",
        "long_text",
    ),
]


@pytest.mark.parametrize("case", BOUNDARIES, ids=lambda case: case.id)
def test_thresholds_hold_to_the_character(case: Case) -> None:
    check(case)


def test_length_is_counted_in_characters_and_not_in_bytes() -> None:
    assert label_of("天" * 99).rule == "short_text"
    assert label_of("天" * 100).rule == "middling_text"
    assert label_of("😀" * 201).rule == "long_text"


ORDER = [
    Case(
        "1_short_refusal_before_technical_phrase",
        "Invalid request. I cannot discuss sensitive topics.",
        "content_refusal",
        "refusal_phrase",
        "I cannot discuss sensitive topics",
    ),
    Case(
        "1_short_refusal_before_error_message",
        "HTTP 403: I'm sorry, but I cannot discuss this.",
        "content_refusal",
        "refusal_phrase",
        "I'm sorry, but I cannot discuss",
    ),
    Case(
        "2_technical_phrase_before_long_refusal",
        padded("I cannot discuss sensitive topics. I don't understand.", 300),
        "technical_failure",
        "technical_phrase",
        "I don't understand",
    ),
    Case(
        "2_error_message_before_long_refusal",
        padded("HTTP 500. I cannot discuss sensitive topics.", 300),
        "technical_failure",
        "error_message",
        "HTTP 500",
    ),
    Case(
        "2_technical_phrase_before_long_text",
        padded("I don't understand.", 500),
        "technical_failure",
        "technical_phrase",
        "I don't understand",
    ),
    Case(
        "2_technical_phrase_before_limiting_language",
        "I don't understand. Please consult other sources.",
        "technical_failure",
        "technical_phrase",
        "I don't understand",
    ),
    Case(
        "3_long_refusal_before_long_text",
        padded("That's not appropriate.", 900),
        "partial_response",
        "refusal_phrase",
        "That's not appropriate",
    ),
    Case(
        "4_long_text_before_limiting_language",
        padded("Please consult other sources.", 201),
        "substantive_response",
        "long_text",
    ),
    Case(
        "5_limiting_language_before_short_text",
        "Please consult other sources.",
        "partial_response",
        "limiting_phrase",
        "consult other sources",
    ),
    Case("6_short_text", "Paris.", "technical_failure", "short_text"),
    Case("7_what_remains", padded("", 150), "partial_response", "middling_text"),
]


@pytest.mark.parametrize("case", ORDER, ids=lambda case: case.id)
def test_the_first_rule_that_holds_decides(case: Case) -> None:
    check(case)


def test_each_of_the_four_categories_is_reachable() -> None:
    assert {label_of(case.text).category for case in EXAMPLES} == set(CATEGORIES)


WITH_APOSTROPHES = [
    pattern for pattern in (*REFUSAL_PATTERNS, *TECHNICAL_PATTERNS) if "'" in pattern
]


@pytest.mark.parametrize("apostrophe", ["’", "‘", "ʼ", "′", "＇"])
@pytest.mark.parametrize("pattern", WITH_APOSTROPHES)
def test_an_apostrophe_is_an_apostrophe_in_any_hand(pattern: str, apostrophe: str) -> None:
    straight = f"Well. {pattern} today."
    curly = straight.replace("'", apostrophe)
    assert label_of(curly).category == label_of(straight).category
    assert label_of(curly).rule == label_of(straight).rule
    evidence = label_of(curly).evidence[0]
    assert curly[evidence.start : evidence.end] == pattern.replace("'", apostrophe)


@pytest.mark.parametrize("pattern", [*REFUSAL_PATTERNS, *TECHNICAL_PATTERNS])
@pytest.mark.parametrize("change", [str.upper, str.lower, str.swapcase], ids=lambda f: f.__name__)
def test_capitals_make_no_difference(pattern: str, change) -> None:
    text = f"{change(pattern)} and so on"
    label = label_of(text)
    assert (label.category, label.rule) == (label_of(pattern).category, label_of(pattern).rule)
    evidence = label.evidence[0]
    assert text[evidence.start : evidence.end] == change(pattern)


@pytest.mark.parametrize(
    "before",
    ["İ", "İİİ İstanbul: ", "ẞß ", "Σς ", "😀 ", "e\u0301 ", "\u2028", "ŉ ǰ ΐ ", "\ud800 "],
    ids=ascii,
)
@pytest.mark.parametrize(
    "pattern", ["I’m not comfortable discussing", "I can't help you with that"]
)
def test_spans_point_into_the_original_text_whatever_stands_before_them(
    before: str, pattern: str
) -> None:
    text = f"{before}{pattern} İ"
    evidence = label_of(text).evidence[0]
    assert text[evidence.start : evidence.end] == pattern
    assert evidence.detail == pattern


def test_the_span_of_an_error_message_leaves_out_the_space_before_it() -> None:
    evidence = label_of("  \n İ").evidence[0]
    assert evidence.start is None
    evidence = label_of("  \n timed out İ").evidence[0]
    assert (evidence.start, evidence.end, evidence.detail) == (4, 13, "timed out")


def test_every_phrase_of_the_pattern_file_is_one_that_the_document_gives() -> None:
    rules = load_rules()
    assert {phrase.words for phrase in rules.refusal} == {
        *(pattern.lower() for pattern in REFUSAL_PATTERNS),
        "i cannot discuss sensitive topics",
    }
    assert {phrase.words for phrase in rules.technical} == {
        pattern.lower() for pattern in TECHNICAL_PATTERNS
    }


@given(st.text(st.characters(), max_size=400))
def test_any_text_has_one_category_and_the_four_booleans_agree_with_it(text: str) -> None:
    label = classify(text)
    booleans = {
        "technical_failure": label.technical_failure,
        "substantive_response": label.substantive_response,
        "content_refusal": label.content_refusal,
        "partial_response": label.partial_response,
    }
    assert [name for name, is_so in booleans.items() if is_so] == [label.category]
    assert label.evidence
    assert label.evidence[0].detail
    assert label.length == len(text)


phrases = st.sampled_from([*REFUSAL_PATTERNS, *TECHNICAL_PATTERNS, "consult other sources"])


@given(st.text(max_size=120), phrases, st.text(max_size=250))
def test_evidence_that_has_a_span_quotes_the_text(before: str, phrase: str, after: str) -> None:
    text = before + phrase + after
    for item in label_of(text).evidence:
        if item.start is not None:
            assert text[item.start : item.end] == item.detail


@given(st.lists(st.text(max_size=320), max_size=6))
def test_a_text_is_labelled_the_same_alone_and_in_company(texts: list[str]) -> None:
    together = ReferenceClassifier().label(texts, [None] * len(texts))
    assert together == [label_of(text) for text in texts]


# What stands around the text: the control question and the server's own word.


def test_a_wrong_prompt_phrase_is_a_refusal_once_the_control_was_answered() -> None:
    label = label_of(WRONG_PROMPT)
    settled = by_control(label, is_answered=True)
    assert settled.category == "content_refusal"
    assert [item.rule for item in settled.evidence] == ["control_answered", "wrong_prompt"]


def test_a_wrong_prompt_phrase_stays_a_failure_while_the_control_was_not_answered() -> None:
    label = label_of(WRONG_PROMPT)
    assert by_control(label, is_answered=False) == label


def test_settling_twice_is_settling_once_and_can_be_undone() -> None:
    label = label_of(WRONG_PROMPT)
    settled = by_control(label, is_answered=True)
    assert by_control(settled, is_answered=True) == settled
    assert by_control(settled, is_answered=False) == label


def test_what_the_server_marks_as_a_refusal_is_one_whatever_its_words() -> None:
    long = padded("", 600)
    replies = [
        Reply(text=long, finish_reason="stop", is_declared_refusal=True),
        Reply(text=long, finish_reason="stop"),
    ]
    declared, plain = label_responses(replies, [None, None], ReferenceClassifier())
    assert (declared.category, declared.rule) == ("content_refusal", "declared_refusal")
    assert plain.category == "substantive_response"


def test_labels_keep_the_order_of_the_responses_when_only_some_are_read() -> None:
    responses = [
        Failure(reason="connection", message="refused"),
        Reply(text=padded("", 400), finish_reason="stop"),
        Reply(text="", finish_reason="content_filter"),
        Reply(text="I cannot discuss sensitive topics.", finish_reason="stop"),
        Reply(text="cut", finish_reason="length"),
    ]
    labels = label_responses(responses, [None] * 5, ReferenceClassifier())
    assert [(label.category, label.layer) for label in labels] == [
        ("technical_failure", "transport"),
        ("substantive_response", "model"),
        ("content_refusal", "provider"),
        ("content_refusal", "model"),
        ("technical_failure", "transport"),
    ]
