"""Every OpenAI-compatible server: over real HTTP on loopback, in every way that it can go wrong."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from beacon.classify import classify, label_responses, load_classifier
from beacon.collect import Collector, Lane
from beacon.errors import ModelError, UsageError
from beacon.model import open_model
from beacon.models.openai import parse_retry_after
from beacon.records import Call, Failure, Reply, Response, Sampling
from beacon.retry import Retry
from beacon.status import status_of
from beacon.store import Store
from beacon.study import ModelEntry, Timeouts
from tests.conftest import small_study
from tests.servers import ANSWER, ScriptedServer

QUICK = Timeouts(connect=1.0, first_byte=0.3, whole=0.9)


def call(prompt: str, **sampling: object) -> Call:
    return Call(
        question_id="q",
        framing_id="f",
        model="m",
        spec="s",
        system="You are a helpful assistant.",
        prompt=prompt,
        sampling=Sampling(**sampling),
        repeat=0,
    )


def ask(spec: str, prompt: str, environ: dict[str, str] | None = None, **entry: object) -> Reply:
    async def once() -> Reply:
        model = await open_model(ModelEntry(spec=spec, **entry), environ or {}, print)
        try:
            return await model.ask(
                call(prompt, seed=3, temperature=0.5, max_tokens=9, stop=("END",))
            )
        finally:
            await model.close()

    return asyncio.run(once())


def respond(server: ScriptedServer, tmp_path, prompt: str) -> Response:
    """What `collect` stores for a call: a reply, or a failure after its tries."""
    stored: list[Response] = []

    async def once() -> None:
        entry = ModelEntry(spec=server.spec, timeouts=QUICK)
        model = await open_model(entry, {}, print)
        study = small_study("smollm2")
        store = Store.create(tmp_path / "run", study, now=datetime.now(UTC), version="t")
        lane = Lane(name="m", model=model, calls=iter([("c1-x", call(prompt))]), limit=1)
        collector = Collector(
            store=store,
            on_stored=lambda group: stored.extend(item.response for item in group),
            retry=Retry(tries=2, first_delay=0.0),
        )
        await collector.collect([lane])
        await model.close()

    asyncio.run(once())
    (response,) = stored
    return response


@dataclass(frozen=True)
class Case:
    what: str
    status: str
    category: str
    layer: str = "transport"
    n_tries: int = 1


CASES = [
    Case("ok", "ok", "substantive_response", "model"),
    Case("parts", "ok", "substantive_response", "model"),
    Case("no_finish", "ok", "substantive_response", "model"),
    Case("surrogate", "ok", "substantive_response", "model"),
    Case("refusal_field", "ok", "content_refusal", "model"),
    Case("empty", "empty_reply", "technical_failure"),
    Case("null", "empty_reply", "technical_failure"),
    Case("emptied", "emptied_reply", "technical_failure"),
    Case("truncated", "truncated", "technical_failure"),
    Case("truncated_in_reasoning", "truncated_in_reasoning", "technical_failure"),
    Case("tool_call", "tool_call", "technical_failure"),
    Case("engine_overloaded", "provider_error", "technical_failure"),
    Case("unknown_finish", "unknown_finish_reason", "technical_failure"),
    Case("unexplained", "unknown_finish_reason", "technical_failure"),
    Case("moderated", "moderated", "content_refusal", "provider"),
    Case("deepseek", "moderated", "content_refusal", "provider"),
    Case("dashscope", "moderated", "content_refusal", "provider"),
    Case("azure", "moderated", "content_refusal", "provider"),
    Case("openrouter", "moderated", "content_refusal", "provider"),
    Case("no_choices", "malformed_reply", "technical_failure"),
    Case("not_an_object", "malformed_reply", "technical_failure"),
    Case("error_in_200", "provider_error", "technical_failure", n_tries=2),
    Case("choice_error", "provider_error", "technical_failure", n_tries=2),
    Case("bad_json", "bad_json", "technical_failure", n_tries=2),
    Case("http_400", "http_error", "technical_failure"),
    Case("http_401", "http_error", "technical_failure"),
    Case("http_404", "http_error", "technical_failure"),
    Case("redirect", "http_error", "technical_failure"),
    Case("unknown_code", "http_error", "technical_failure"),
    Case("http_500", "http_error", "technical_failure", n_tries=2),
    Case("http_503", "http_error", "technical_failure", n_tries=2),
    Case("http_529", "http_error", "technical_failure", n_tries=2),
    Case("rate_limited", "rate_limited", "technical_failure", n_tries=2),
    Case("no_quota", "rate_limited", "technical_failure"),
    Case("reset", "connection_failed", "technical_failure", n_tries=2),
    Case("cut_body", "connection_failed", "technical_failure", n_tries=2),
    Case("hang", "timed_out", "technical_failure", n_tries=2),
    Case("drip", "timed_out", "technical_failure", n_tries=2),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_every_way_to_fail_has_its_status_and_category(
    server: ScriptedServer, tmp_path, case: Case
) -> None:
    response = respond(server, tmp_path, f"do: {case.what}")
    (label,) = label_responses([response], [None], load_classifier("reference"))
    assert status_of(response).kind == case.status
    assert (label.category, label.layer) == (case.category, case.layer)
    assert response.n_tries == case.n_tries
    assert sum(server.asked.values()) == case.n_tries


def test_the_two_slow_failures_name_the_timeout_that_ran_out(server, tmp_path) -> None:
    hang = respond(server, tmp_path / "a", "do: hang")
    drip = respond(server, tmp_path / "b", "do: drip")
    assert isinstance(hang, Failure)
    assert isinstance(drip, Failure)
    assert (hang.reason, drip.reason) == ("first_byte_timeout", "whole_timeout")


def test_a_server_that_is_not_there_is_a_connection_failure() -> None:
    with pytest.raises(ModelError) as caught:
        ask("http://127.0.0.1:9/v1#m", "hello")
    assert caught.value.reason == "connection"
    assert "refused" in caught.value.message


def test_a_reply_keeps_all_that_came_with_it(server: ScriptedServer) -> None:
    reply = ask(server.spec, "do: reasoning")
    assert reply.text == ANSWER
    assert reply.reasoning == "First, the dates."
    assert (reply.finish_reason, reply.served_model) == ("stop", "served-name-1")
    assert reply.provider == "Upstream"
    assert (reply.prompt_tokens, reply.completion_tokens) == (20, 60)
    assert reply.latency > 0


def test_reasoning_inside_the_text_is_kept_apart(server: ScriptedServer) -> None:
    reply = ask(server.spec, "do: think_block")
    assert (reply.reasoning, reply.text) == ("First, the dates.", ANSWER)


def test_a_lone_surrogate_is_replaced_and_a_line_separator_kept(server: ScriptedServer) -> None:
    reply = ask(server.spec, "do: surrogate")
    assert reply.text.startswith("lone \ufffd surrogate, line\u2028separator.")


def test_the_system_prompt_and_the_sampling_are_sent(server: ScriptedServer) -> None:
    ask(server.spec, "hello", body={"provider": {"order": ["A"]}})
    (body,) = server.bodies
    assert body == {
        "model": "served-name-1",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": "hello"},
        ],
        "temperature": 0.5,
        "max_tokens": 9,
        "seed": 3,
        "stop": ["END"],
        "provider": {"order": ["A"]},
    }


def test_plain_completions_send_one_prompt(server: ScriptedServer) -> None:
    reply = ask(f"completions:{server.spec}", "hello")
    assert reply.text == ANSWER
    expected = "You are a helpful assistant.\n\nQuestion: hello\nAnswer:"
    assert server.bodies[0]["prompt"] == expected


def test_a_url_without_a_name_takes_the_only_model(server: ScriptedServer) -> None:
    ask(server.url, "hello")
    assert server.bodies[0]["model"] == "served-name-1"


def test_a_url_without_a_name_lists_them_when_there_are_several(server: ScriptedServer) -> None:
    server.models = ["one", "two"]
    with pytest.raises(UsageError, match=r"serves 2 models \(one, two\); say which"):
        ask(server.url, "hello")


def test_a_preset_needs_its_key_and_says_which_variable() -> None:
    with pytest.raises(UsageError, match="set the environment variable OPENAI_API_KEY"):
        ask("openai/gpt-4o", "hello")


def test_a_preset_at_another_address_sends_its_key_and_its_own_parameter_names(server) -> None:
    ask("openai/gpt-4o", "hello", {"OPENAI_API_KEY": "sk-test"}, url=server.url)
    assert server.headers[0]["Authorization"] == "Bearer sk-test"
    assert server.bodies[0]["max_completion_tokens"] == 9
    assert "max_tokens" not in server.bodies[0]


def test_a_key_for_another_host_is_not_sent(server: ScriptedServer) -> None:
    ask(server.spec, "hello", {"OPENAI_API_KEY": "sk-test"})
    assert "Authorization" not in server.headers[0]


def test_a_key_that_the_server_echoes_is_not_kept(server: ScriptedServer) -> None:
    with pytest.raises(ModelError) as caught:
        ask(server.spec, "do: http_401", {"BEACON_API_KEY": "sk-secret"})
    assert caught.value.message == "Incorrect API key provided: [key]"


def test_a_redirect_is_not_followed(server: ScriptedServer) -> None:
    with pytest.raises(ModelError) as caught:
        ask(server.spec, "do: redirect", {"BEACON_API_KEY": "sk-secret"})
    assert caught.value.http_status == 302
    assert sum(server.asked.values()) == 1


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("Sun, 15 Nov 2026 12:00:30 GMT", 30.0),
        ("Sun, 15 Nov 2026 11:00:00 GMT", 0.0),
        ("soon", None),
    ],
)
def test_both_forms_of_retry_after_are_read(header, seconds) -> None:
    now = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
    assert parse_retry_after(header, now=now) == seconds


def test_the_public_function_labels_by_status_too() -> None:
    assert classify("", finish_reason="stop").category == "technical_failure"
    assert classify("x" * 500, finish_reason="content_filter").layer == "provider"
