"""A GGUF file, run in this process by llama.cpp.

What llama.cpp does of its own accord, and a reader of its replies should know:

- The file's own chat template writes the prompt. Some add a system prompt of their own when a call
  has none (SmolLM2's does), and no template argument prevents that: give the framing one.
- A template without a system role gets the system prompt at the head of the user's message.
- What the study leaves open is as the file recommends, else temperature 0.8 and top_p 0.95; top_k
  40 and min_p 0.05 apply as well, unless the model's `body` changes them.
- Timeouts are not applied: an engine in this process is slow, but it is never out of reach.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import struct
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from beacon.errors import MissingExtra, ModelError, UsageError
from beacon.models.wire import LONGEST_QUOTE, error_of, read_reply, request_body
from beacon.records import Call, Reply, storable
from beacon.spec import Api, Spec
from beacon.study import ModelEntry

SLOTS: Final = 4
"""Calls at once: 4 make up to twice the tokens per second of 1, and 8 no more than 4."""
SLOT_TOKENS: Final = 4096
"""Tokens of prompt and reply that a call may have; more if the model's `max_tokens` asks for it."""
MOST_TOKENS: Final = 32768
"""All slots together: their memory is taken when the model is loaded."""
RANDOM_SEED: Final = 0xFFFFFFFF
"""The seed by which llama.cpp means "any"."""


async def open_gguf(
    entry: ModelEntry, spec: Spec, environ: Mapping[str, str], say: Callable[[str], None]
) -> GGUFModel:
    """Load the file that the spec names."""
    del say
    path = await asyncio.to_thread(Path(spec.target).expanduser)
    return await open_file(path, entry, spec.api, environ)


async def open_file(
    path: Path, entry: ModelEntry, api: Api, environ: Mapping[str, str]
) -> GGUFModel:
    """Load a GGUF file for `entry`."""
    engine = import_engine()
    header = await asyncio.to_thread(read_header, path)
    if api == "chat" and not header.get("tokenizer.chat_template"):
        raise UsageError(
            f"{path} has no chat template: it is a base model, or was converted without one. "
            f"To have it continue plain text instead, write completions:gguf/{path}."
        )
    trained = header.get(f"{header.get('general.architecture')}.context_length")
    n_slots, n_slot_tokens = choose_slots(entry, trained if isinstance(trained, int) else None)
    params = engine.CommonParams()
    params.model.path = str(path)
    params.n_parallel = n_slots
    params.n_ctx = n_slots * n_slot_tokens  # llama.cpp divides it evenly among the slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = choose_threads(environ)
    params.verbosity = 0
    params.cache_ram_mib = 0
    # The engine opens a port on this machine that can't be had without: nobody else gets in.
    params.api_keys = [secrets.token_urlsafe(32)]
    params.ui = params.endpoint_slots = False
    try:
        server = await asyncio.to_thread(engine.Server, params)
    except (RuntimeError, ValueError):
        raise UsageError(
            f"llama.cpp cannot load {path}: the file is damaged or cut short, is of a kind that "
            "this version of xllamacpp does not know, or needs more memory than there is."
        ) from None
    return GGUFModel(server, entry, api, path.name, n_slots)


def import_engine() -> Any:
    """The `xllamacpp` module."""
    try:
        import xllamacpp
    except ImportError:
        raise MissingExtra("Running a GGUF file", "local") from None
    return xllamacpp


def choose_slots(entry: ModelEntry, n_trained: int | None) -> tuple[int, int]:
    """How many calls at once, and how many tokens each may have."""
    n_wanted = max(SLOT_TOKENS, (entry.sampling.max_tokens or 0) + SLOT_TOKENS // 2)
    n_tokens = min(n_wanted, n_trained or n_wanted)
    return max(1, min(entry.limit or SLOTS, MOST_TOKENS // n_tokens)), n_tokens


def choose_threads(environ: Mapping[str, str]) -> int:
    """Threads for the arithmetic: OMP_NUM_THREADS, else one per core that can be spared.

    They wait for each other by spinning: when one of them has to share its core with anything
    else, a reply takes ten times as long and more. -1 leaves the choice to llama.cpp.
    """
    asked = environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    if not hasattr(os, "sched_getaffinity"):
        return -1
    allowed = os.sched_getaffinity(0)
    n_cores = len({_siblings(number) for number in allowed})
    return n_cores if n_cores < len(allowed) else max(1, n_cores - 1)


def _siblings(processor: int) -> str:
    """The processors of Linux that share a core with this one."""
    path = Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
    return path.read_text() if path.exists() else str(processor)


class GGUFModel:
    """A model in llama.cpp's own server, which is asked by function call.

    The same call with the same seed gives the same text, in whatever company it runs: checked on
    CPUs. Processors that add in another order for another batch size (GPUs do) may not keep that.
    """

    def __init__(self, server: Any, entry: ModelEntry, api: Api, name: str, n_slots: int) -> None:
        self.limit = n_slots
        self._api: Api = api
        self._handle: Callable[..., None] | None = (
            server.handle_chat_completions if api == "chat" else server.handle_completions
        )
        self._extra = entry.body
        self._name = name
        self._threads = ThreadPoolExecutor(max_workers=n_slots, thread_name_prefix="gguf")

    async def ask(self, call: Call) -> Reply:
        """The model's reply; ends the generation when cancelled."""
        body = request_body(call, target="", api=self._api, extra=self._extra)
        if call.sampling.seed is not None:
            body["seed"] = call.sampling.seed % RANDOM_SEED
        # Reusing an earlier prompt's arithmetic would make a reply depend on what came before it.
        body.setdefault("cache_prompt", False)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        is_over, loop = threading.Event(), asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self._generate, body, is_over)
        finally:
            is_over.set()

    async def close(self) -> None:
        """End what is under way and free the memory."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        self._handle = None  # the last reference to the server

    def _generate(self, body: dict[str, Any], is_over: threading.Event) -> Reply:
        """The whole reply. It is streamed, since only a stream can be ended."""
        chunks: list[dict[str, Any]] = []

        def take(chunk: dict[str, Any]) -> bool:
            chunks.append(chunk)
            return is_over.is_set()

        assert self._handle, "asked after close()"
        started = time.perf_counter()
        try:
            self._handle(body, take)
        except (RuntimeError, ValueError) as error:
            raise ModelError("engine", storable(str(error))[:LONGEST_QUOTE]) from None
        reply = read_reply(join_chunks(chunks), latency=time.perf_counter() - started)
        return msgspec.structs.replace(reply, served_model=self._name)


def join_chunks(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """A stream's chunks as the one body that would have come without streaming."""
    failed = next((chunk for chunk in chunks if chunk.get("error")), None)
    if failed:
        error = error_of(failed, reason_status=None)
        raise ModelError("engine", error.message, code=error.code)
    choices = [choice for chunk in chunks for choice in chunk.get("choices") or ()]
    if not choices:
        raise ModelError("engine", "llama.cpp sent no reply")
    joined: dict[str, Any] = {"finish_reason": choices[-1].get("finish_reason")}
    tokens = [
        token for choice in choices for token in (choice.get("logprobs") or {}).get("content") or ()
    ]
    if tokens:
        joined["logprobs"] = {"content": tokens}
    if "delta" in choices[0]:
        parts = [choice.get("delta") or {} for choice in choices]
        joined["message"] = {
            name: "".join(part.get(name) or "" for part in parts)
            for name in ("content", "reasoning_content")
        }
    else:
        joined["text"] = "".join(choice.get("text") or "" for choice in choices)
    return {"choices": [joined], "usage": chunks[-1].get("usage")}


_NUMBERS: Final = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9


def read_header(path: Path) -> dict[str, Any]:
    """What a GGUF file says of itself; lists, such as the vocabulary, are left out."""
    try:
        with path.open("rb") as file:
            magic, version, _, n_entries = struct.unpack("<4sIQQ", file.read(24))
            if magic != b"GGUF":
                raise UsageError(f"{path} is not a GGUF file.")
            if version not in (2, 3):
                raise UsageError(f"{path} is a GGUF file of version {version}; 2 and 3 are known.")
            return {_read_string(file): _read_value(file) for _ in range(n_entries)}
    except OSError as error:
        raise UsageError(f"Cannot read the model {path}: {error.strerror}.") from None
    except (struct.error, KeyError, UnicodeDecodeError, OverflowError, MemoryError):
        raise UsageError(f"{path} is not a GGUF file, or is damaged.") from None


def _read_value(file: BinaryIO) -> Any:
    kind = _read_number(file, "I")
    if kind == _STRING:
        return _read_string(file)
    if kind != _ARRAY:
        return _read_number(file, _NUMBERS[kind])
    kind, n_items = _read_number(file, "I"), _read_number(file, "Q")
    if kind == _STRING:
        for _ in range(n_items):
            file.seek(_read_number(file, "Q"), os.SEEK_CUR)
    else:
        file.seek(n_items * struct.calcsize("<" + _NUMBERS[kind]), os.SEEK_CUR)
    return None


def _read_number(file: BinaryIO, form: str) -> Any:
    return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))[0]


def _read_string(file: BinaryIO) -> str:
    n_bytes = _read_number(file, "Q")
    return bytes(struct.unpack(f"{n_bytes}s", file.read(n_bytes))[0]).decode("utf-8")
