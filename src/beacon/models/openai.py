"""Every server that speaks the OpenAI form, over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import DetailedPyreqwestError, PyreqwestError, RequestTimeoutError
from pyreqwest.response import Response

from beacon.errors import ModelError, UsageError
from beacon.models.wire import LONGEST_QUOTE, error_of, read_reply, request_body
from beacon.records import Call, Reply, storable
from beacon.spec import URL_KEY_ENV, Spec
from beacon.study import ModelEntry, Timeouts

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


async def open_openai(
    entry: ModelEntry, spec: Spec, environ: Mapping[str, str], say: Callable[[str], None]
) -> OpenAIModel:
    """Open the server that `entry` names; asks it for its model's name if the spec gives none."""
    del say
    key = read_key(entry, spec, environ)
    model = OpenAIModel(entry, spec, key)
    try:
        if not spec.target:
            await model.discover()
    except BaseException:
        await model.close()
        raise
    return model


def read_key(entry: ModelEntry, spec: Spec, environ: Mapping[str, str]) -> str:
    """The key for a server; a `UsageError` when it needs one and none is set."""
    name = entry.key_env or spec.key_env
    key = environ.get(name, "") if name else ""
    if key or not name or (name == URL_KEY_ENV and not entry.key_env):
        return key
    if spec.preset is None and not entry.key_env:
        return key
    raise UsageError(f"{entry.label} needs a key: set the environment variable {name}.")


class OpenAIModel:
    """A model behind an OpenAI-compatible endpoint."""

    limit = 16

    def __init__(self, entry: ModelEntry, spec: Spec, key: str) -> None:
        self._target = spec.target
        self._api = spec.api
        self._preset = spec.preset
        self._extra = entry.body
        self._base = (entry.url or spec.url).rstrip("/")
        path = "chat/completions" if spec.api == "chat" else "completions"
        self._url = f"{self._base}/{path}"
        self._key = key
        self._timeouts = entry.timeouts
        self._client = _client(entry.timeouts, key)

    async def ask(self, call: Call) -> Reply:
        """Send the call once."""
        body = _encoder.encode(
            request_body(
                call, target=self._target, api=self._api, preset=self._preset, extra=self._extra
            )
        )
        started = time.perf_counter()
        response = await self._send(self._url, body)
        raw = bytes(await response.bytes())
        latency = time.perf_counter() - started
        if response.status != 200:
            raise self._refused(response, raw)
        return read_reply(_decode(raw), latency=latency)

    async def discover(self) -> None:
        """Take the name of the one model that the server has."""
        names = await self.served()
        if len(names) != 1:
            shown = ", ".join(names[:12]) or "none"
            raise UsageError(
                f"{self._base} serves {len(names)} models ({shown}); "
                f"say which as {self._base}#NAME."
            )
        self._target = names[0]

    async def served(self) -> list[str]:
        """The names of the models that the server offers."""
        try:
            response = await self._send(f"{self._base}/models", None)
            raw = bytes(await response.bytes())
            if response.status != 200:
                raise self._refused(response, raw)
            return [str(model["id"]) for model in _decode(raw)["data"]]
        except ModelError as error:
            raise UsageError(f"{self._base} does not list its models: {error.message}") from None
        except (KeyError, TypeError):
            raise UsageError(f"{self._base}/models has no list of models.") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _send(self, url: str, body: bytes | None) -> Response:
        """POST `body`, or GET without one; the response has been read to its end."""
        request = self._client.get(url) if body is None else self._client.post(url).body_bytes(body)
        started = time.perf_counter()
        try:
            return await request.build().send()
        except RequestTimeoutError:
            raise self._late(time.perf_counter() - started) from None
        except PyreqwestError as error:
            raise ModelError("connection", self._redact(f"{url}: {_cause(error)}")) from None

    def _late(self, seconds: float) -> ModelError:
        """Which of the timeouts it was; the client names a missing first byte a failed connect."""
        times = self._timeouts
        if seconds >= times.whole:
            return ModelError("whole_timeout", f"no whole reply within {times.whole:g} s")
        if seconds >= times.first_byte:
            return ModelError("first_byte_timeout", f"no byte within {times.first_byte:g} s")
        return ModelError("connect_timeout", f"no connection within {times.connect:g} s")

    def _refused(self, response: Response, raw: bytes) -> ModelError:
        try:
            payload: Any = _decode(raw)
        except ModelError:
            payload = raw.decode("utf-8", "replace").strip() or "no body"
        retry_after = parse_retry_after(response.get_header("retry-after"), now=datetime.now(UTC))
        error = error_of(payload, reason_status=response.status, retry_after=retry_after)
        error.message = self._redact(error.message)
        return error

    def _redact(self, message: str) -> str:
        """A server may echo the key in its complaint; a key is stored nowhere."""
        return message.replace(self._key, "[key]") if self._key else message


def _client(timeouts: Timeouts, key: str) -> Client:
    """Redirects are not followed: they would carry the key to another host."""
    headers = {"content-type": "application/json", "accept": "application/json"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    return (
        ClientBuilder()
        .default_headers(headers)
        .user_agent("beacon")
        .follow_redirects(False)
        .connect_timeout(timedelta(seconds=timeouts.connect))
        .read_timeout(timedelta(seconds=timeouts.first_byte))
        .timeout(timedelta(seconds=timeouts.whole))
        .build()
    )


def _cause(error: PyreqwestError) -> str:
    """The innermost reason that the client gives."""
    causes = error.details["causes"] if isinstance(error, DetailedPyreqwestError) else None
    return str(causes[-1]["message"]) if causes else str(error)


def _decode(raw: bytes) -> Any:
    """JSON, with lone surrogates let through as Python's own reader does."""
    try:
        return _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return json.loads(raw)
    except ValueError as error:
        quote = storable(raw[:LONGEST_QUOTE].decode("utf-8", "replace"))
        raise ModelError("bad_json", f"the body is not JSON ({error}): {quote!r}") from None


def parse_retry_after(value: str | None, *, now: datetime) -> float | None:
    """Seconds to wait, from either form of the header; None when it can't be read."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
