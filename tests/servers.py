"""A real HTTP server on loopback that answers, or fails, as the question asks it to.

The user's message names a way to behave, as in `do: http_500`; anything else is answered at length.
Every request is counted by its prompt and seed, so that a test can tell what was asked twice.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Self

from aiohttp import web

ANSWER = (
    "Here is an answer that goes on for a while. It gives dates, names and places, says what is "
    "known and what is disputed, and sets out more than one view of the matter, so that by any "
    "count of characters it is long enough to be called substantive."
)


def completion(
    text: Any = ANSWER, *, finish: str | None = "stop", tokens: int = 60, **message: Any
) -> dict[str, Any]:
    """A chat completion as servers send it."""
    return {
        "id": "x",
        "object": "chat.completion",
        "model": "served-name-1",
        "provider": "Upstream",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": text, **message},
            }
        ],
        "usage": {"prompt_tokens": 20, "completion_tokens": tokens},
    }


def error(status: int, body: Any, **headers: str) -> web.Response:
    """An HTTP error."""
    if isinstance(body, str):
        return web.Response(status=status, text=body, headers=headers)
    return web.json_response(body, status=status, headers=headers)


def openai_error(code: str, message: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    """An error body in OpenAI's form."""
    return {"error": {"message": message, "type": kind, "code": code}}


REPLIES: dict[str, Any] = {
    "empty": completion("", tokens=0),
    "emptied": completion("", tokens=40),
    "null": completion(None, tokens=0),
    "truncated": completion("The story begins in", finish="length"),
    "truncated_in_reasoning": completion("", finish="length", reasoning_content="Let me think"),
    "moderated": completion("", finish="content_filter", tokens=3),
    "tool_call": completion(None, finish="tool_calls"),
    "engine_overloaded": completion("", finish="engine_overloaded"),
    "unknown_finish": completion("Something.", finish="because_i_felt_like_it"),
    "unexplained": completion("", finish="OTHER"),
    "refusal_field": completion(None, refusal="I'd rather not say."),
    "parts": completion([{"type": "text", "text": ANSWER}]),
    "reasoning": completion(ANSWER, reasoning_content="First, the dates."),
    "think_block": completion(f"<think>First, the dates.</think>\n\n{ANSWER}"),
    "no_finish": completion(finish=None),
    "no_choices": {"id": "x", "choices": []},
    "not_an_object": ["a", "list"],
    "error_in_200": openai_error("server_error", "the engine fell over", "server_error"),
    "choice_error": {"choices": [{"error": {"code": 502, "message": "upstream broke"}}]},
}

ERRORS: dict[str, tuple[int, Any]] = {
    "http_400": (400, openai_error("bad_request", "what was that?")),
    "http_401": (401, openai_error("invalid_api_key", "Incorrect API key provided: sk-secret")),
    "http_404": (404, "modal-http: invalid function call"),
    "http_500": (500, {"detail": "boom"}),
    "http_503": (503, "<html>Service Unavailable</html>"),
    "http_529": (529, {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}),
    "no_quota": (429, openai_error("insufficient_quota", "You exceeded your current quota.")),
    "unknown_code": (400, openai_error("quantum_flux", "?")),
    "deepseek": (400, openai_error("invalid_request_error", "Content Exists Risk")),
    "dashscope": (400, {"code": "DataInspectionFailed", "message": "Input data may contain it."}),
    "azure": (
        400,
        {
            "error": {
                "code": "content_filter",
                "message": "The response was filtered",
                "innererror": {"code": "ResponsibleAIPolicyViolation"},
            }
        },
    ),
    "openrouter": (403, {"error": {"code": 403, "message": "Your input was flagged"}}),
    "redirect": (302, ""),
}


class ScriptedServer:
    """Runs in a thread of its own, on a free port."""

    def __init__(self) -> None:
        self.asked: Counter[tuple[str, str, int | None]] = Counter()
        """How often each (system prompt, question, seed) was asked."""
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.models = ["served-name-1"]
        self.delay = 0.0
        self.echoed_key = "sk-echo-this-one"
        """Whoever comes with this key is told so, in an error inside an HTTP 200."""
        self.n_in_flight = self.most_in_flight = 0
        self._failures_left: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop: asyncio.Event
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.port = 0

    @property
    def url(self) -> str:
        """The base URL, to be used as a spec."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def spec(self) -> str:
        """A spec that names the model too."""
        return f"{self.url}#served-name-1"

    def fail_first(self, n: int, question: str) -> None:
        """Answer 503 to the first `n` requests whose question holds these words."""
        self._failures_left[question] = n

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_get("/v1/models", self._models)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _models(self, request: web.Request) -> web.Response:
        del request
        return web.json_response({"data": [{"id": name} for name in self.models]})

    async def _completions(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.json())
        text = f" {ANSWER}"
        return web.json_response(
            {"model": "served-name-1", "choices": [{"text": text, "finish_reason": "stop"}]}
        )

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        system = "".join(m["content"] for m in body["messages"] if m["role"] == "system")
        question = body["messages"][-1]["content"]
        self.asked[system, question, body.get("seed")] += 1
        self.n_in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.n_in_flight)
        try:
            if self.delay:
                await asyncio.sleep(self.delay)
            return await self._behave(request, question)
        finally:
            self.n_in_flight -= 1

    async def _behave(self, request: web.Request, question: str) -> web.StreamResponse:
        if self.echoed_key in request.headers.get("Authorization", ""):
            return web.json_response(
                openai_error("x", f"who is {request.headers['Authorization']}?")
            )
        for words in self._failures_left:
            if words in question and self._failures_left[words] > 0:
                self._failures_left[words] -= 1
                return error(503, "try later")
        what = question.partition("do: ")[2]
        if what in REPLIES:
            return web.json_response(REPLIES[what])
        if what in ERRORS:
            status, body = ERRORS[what]
            return error(status, body, **({"Location": "/elsewhere"} if status == 302 else {}))
        if what in TRICKS:
            return await TRICKS[what](self, request)
        return web.json_response(completion())


async def _rate_limited(server: ScriptedServer, request: web.Request) -> web.StreamResponse:
    del server, request
    return error(429, openai_error("rate_limit_exceeded", "slow down"), **{"Retry-After": "0"})


async def _bad_json(server: ScriptedServer, request: web.Request) -> web.StreamResponse:
    del server, request
    return web.Response(text='{"choices": [', content_type="application/json")


async def _surrogate(server: ScriptedServer, request: web.Request) -> web.StreamResponse:
    del server, request
    text = json.dumps(completion(f"lone \ud800 surrogate, line\u2028separator. {ANSWER}"))
    return web.Response(text=text, content_type="application/json")


async def _reset(server: ScriptedServer, request: web.Request) -> web.StreamResponse:
    del server
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _cut_body(server: ScriptedServer, request: web.Request) -> web.StreamResponse:
    del server
    response = web.StreamResponse(headers={"Content-Length": "5000"})
    await response.prepare(request)
    await response.write(b'{"choices": [')
    assert request.transport is not None
    request.transport.abort()
    return response


async def _hang(server: ScriptedServer, request: web.Request) -> web.StreamResponse:
    del server, request
    await asyncio.sleep(5)
    return web.Response()


async def _drip(server: ScriptedServer, request: web.Request) -> web.StreamResponse:
    del server
    response = web.StreamResponse(headers={"Content-Length": "5000"})
    await response.prepare(request)
    for _ in range(50):
        await response.write(b" ")
        await asyncio.sleep(0.1)
    return response


TRICKS: dict[str, Callable[[ScriptedServer, web.Request], Awaitable[web.StreamResponse]]] = {
    "rate_limited": _rate_limited,
    "bad_json": _bad_json,
    "surrogate": _surrogate,
    "reset": _reset,
    "cut_body": _cut_body,
    "hang": _hang,
    "drip": _drip,
}
