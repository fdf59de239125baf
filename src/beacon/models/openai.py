"""Every server that speaks the OpenAI form, over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

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
    model = OpenAIModel(entry, spec, key, environ)
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
    key = environ.get(name, "").strip() if name else ""
    if not key.isprintable() or not key.isascii():
        raise UsageError(f"The key in {name} holds characters that no key has; set it again.")
    if key or not name or (name == URL_KEY_ENV and not entry.key_env):
        return key
    if spec.preset is None and not entry.key_env:
        return key
    raise UsageError(f"{entry.label} needs a key: set the environment variable {name}.")


class OpenAIModel:
    """A model behind an OpenAI-compatible endpoint."""

    limit = 16

    def __init__(self, entry: ModelEntry, spec: Spec, key: str, environ: Mapping[str, str]) -> None:
        self._target = spec.target
        self._api = spec.api
        self._preset = spec.preset
        self._extra = entry.body
        self._base = (entry.url or spec.url).rstrip("/")
        path = "chat/completions" if spec.api == "chat" else "completions"
        self._url = f"{self._base}/{path}"
        self._key = key
        self._timeouts = entry.timeouts
        self._proxy = proxy_for(self._base, environ)
        self._session = _session(entry.timeouts, key)

    async def ask(self, call: Call) -> Reply:
        """Send the call once."""
        body = _encoder.encode(
            request_body(
                call, target=self._target, api=self._api, preset=self._preset, extra=self._extra
            )
        )
        started = time.perf_counter()
        status, headers, raw = await self._send(self._url, body)
        latency = time.perf_counter() - started
        if status != 200:
            raise self._refused(status, headers, raw)
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
            status, headers, raw = await self._send(f"{self._base}/models", None)
            if status != 200:
                raise self._refused(status, headers, raw)
            return [str(model["id"]) for model in _decode(raw)["data"]]
        except ModelError as error:
            raise UsageError(f"{self._base} does not list its models: {error.message}") from None
        except (KeyError, TypeError):
            raise UsageError(f"{self._base}/models has no list of models.") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _send(self, url: str, body: bytes | None) -> tuple[int, Mapping[str, str], bytes]:
        """POST `body`, or GET without one, and read the response to its end."""
        times = self._timeouts
        method = "GET" if body is None else "POST"
        first_byte = asyncio.timeout(times.first_byte)
        try:
            async with asyncio.timeout(times.whole):
                async with first_byte:
                    response = await self._session.request(
                        method, url, data=body, allow_redirects=False, proxy=self._proxy
                    )
                async with response:
                    raw = await response.read()
                    return response.status, response.headers, self._without_key(raw)
        except aiohttp.ConnectionTimeoutError:
            message = f"no connection within {times.connect:g} s"
            raise ModelError("connect_timeout", message) from None
        except TimeoutError:
            if first_byte.expired():
                message = f"no byte within {times.first_byte:g} s"
                raise ModelError("first_byte_timeout", message) from None
            message = f"no whole reply within {times.whole:g} s"
            raise ModelError("whole_timeout", message) from None
        except (aiohttp.ClientError, OSError) as error:
            raise ModelError("connection", f"{url}: {_cause(error)}") from None

    def _refused(self, status: int, headers: Mapping[str, str], raw: bytes) -> ModelError:
        try:
            payload: Any = _decode(raw)
        except ModelError:
            payload = raw.decode("utf-8", "replace").strip() or "no body"
        retry_after = parse_retry_after(headers.get("Retry-After"), now=datetime.now(UTC))
        return error_of(payload, reason_status=status, retry_after=retry_after)

    def _without_key(self, raw: bytes) -> bytes:
        """A server may echo the key in what it says; a key is stored nowhere."""
        return raw.replace(self._key.encode(), b"[key]") if self._key else raw


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy that the environment names for `url`.

    Looked up once: aiohttp's own look-up, made for every request, costs more than the request.
    """
    parts = urlsplit(url)
    names = {name.lower(): value for name, value in environ.items() if value}
    host = f".{parts.hostname}"
    for bypassed in names.get("no_proxy", "").split(","):
        if bypassed.strip() == "*" or (bypassed.strip() and host.endswith(_dotted(bypassed))):
            return None
    return names.get(f"{parts.scheme}_proxy") or names.get("all_proxy")


def _dotted(host: str) -> str:
    return f".{host.strip().lstrip('.').partition(':')[0]}"


def _session(timeouts: Timeouts, key: str) -> aiohttp.ClientSession:
    """How many calls are under way is for `collect` to limit, so the pool has no limit."""
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        headers={**headers, "User-Agent": "beacon"},
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeouts.connect),
        cookie_jar=aiohttp.DummyCookieJar(),
    )


def _cause(error: Exception) -> str:
    """What went wrong, in the system's words where it has some."""
    number = None if isinstance(error, aiohttp.ClientSSLError) else getattr(error, "errno", None)
    return os.strerror(number) if number and number > 0 else str(error) or type(error).__name__


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
