"""A GGUF file in this process: the real engine and model in the box, and files that are none."""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from beacon.errors import MissingExtra, ModelError
from beacon.model import Model, open_model
from beacon.models.gguf import (
    MOST_TOKENS,
    choose_slots,
    choose_threads,
    import_engine,
    join_chunks,
    read_header,
)
from beacon.models.wire import read_reply
from beacon.records import Sampling
from beacon.study import ModelEntry
from tests.models.conftest import ENVIRON, ask, ask_all, make_call, refusal_to_open, with_model

pytest.importorskip("xllamacpp")
box = pytest.mark.box


def gguf_bytes(*entries: tuple[str, int, bytes], version: int = 3) -> bytes:
    """A GGUF file without tensors: each entry is a key, the number of a type, and the value."""
    head = struct.pack("<4sIQQ", b"GGUF", version, 0, len(entries))
    return head + b"".join(
        struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value
        for key, kind, value in entries
    )


def gguf_string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


BASE_MODEL = gguf_bytes(
    ("general.architecture", 8, gguf_string("llama")),
    ("llama.context_length", 4, struct.pack("<I", 2048)),
    ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 2) + gguf_string("a") + gguf_string("b")),
    ("tokenizer.ggml.scores", 9, struct.pack("<IQ", 6, 2) + struct.pack("<2f", 0.5, 1.5)),
    ("tokenizer.ggml.add_bos_token", 7, b"\x01"),
)


@box
def test_a_reply_says_how_it_ended_how_long_it_is_and_which_file_answered(box_path: Path):
    reply = ask(ModelEntry(spec=f"gguf/{box_path}"), make_call(max_tokens=8, temperature=0.0))
    assert reply.text == "I'm a curious and adventurous soul with"
    assert (reply.finish_reason, reply.completion_tokens, reply.prompt_tokens) == ("length", 8, 24)
    assert reply.served_model == box_path.name
    assert reply.logprobs is None
    assert reply.latency > 0


@box
def test_a_stop_string_ends_the_reply_and_is_left_out(box_path: Path):
    call = make_call(max_tokens=30, temperature=0.0, stop=("curious",))
    reply = ask(ModelEntry(spec=f"gguf/{box_path}"), call)
    assert (reply.text, reply.finish_reason) == ("I'm a ", "stop")


@box
@pytest.mark.parametrize("prefix", ["", "completions:"])
def test_log_probabilities_come_with_alternatives(box_path: Path, prefix: str):
    call = make_call(max_tokens=3, temperature=0.0, logprobs=5)
    reply = ask(ModelEntry(spec=f"{prefix}gguf/{box_path}"), call)
    assert reply.logprobs is not None
    assert "".join(token.token for token in reply.logprobs).strip() == reply.text
    for token in reply.logprobs:
        assert len(token.top) == 5
        assert token.top[0] == (token.token, token.logprob)  # greedy: the likeliest was taken


@box
def test_the_same_seed_gives_the_same_text_alone_and_in_company(box_path: Path):
    calls = [
        make_call(prompt, max_tokens=24, temperature=0.7, seed=seed)
        for prompt in ("Who are you?", "What is the current status of Taiwan?")
        for seed in (1989, 2**32 - 1)
    ]
    entry = ModelEntry(spec=f"gguf/{box_path}")
    alone = [reply.text for reply in ask_all(entry, calls)]
    in_company = [reply.text for reply in ask_all(entry, calls[::-1], at_once=4)][::-1]
    assert in_company == alone
    assert len(set(alone)) == len(alone)


@box
def test_without_a_system_prompt_the_template_of_smollm2_adds_its_own(box_path: Path):
    calls = [make_call("Hi", system="", max_tokens=1), make_call("Hi", system="x", max_tokens=1)]
    unasked, given = ask_all(ModelEntry(spec=f"gguf/{box_path}"), calls)
    added = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    assert added in read_header(box_path)["tokenizer.chat_template"]
    assert unasked.prompt_tokens > given.prompt_tokens + 10


@box
def test_a_prompt_too_long_for_a_slot_is_a_failure_and_the_next_call_is_answered(box_path: Path):
    """llama.cpp divides its context among the slots; each of them still has 4096 tokens."""

    async def use(model: Model) -> str:
        says = r"\(\d+ tokens\) exceeds the available context size \(4096 tokens\)"
        with pytest.raises(ModelError, match=says) as caught:
            await model.ask(make_call("word " * 9000))
        assert caught.value.reason == "engine"
        return (await model.ask(make_call(max_tokens=1, temperature=0.0))).text

    assert with_model(ModelEntry(spec=f"gguf/{box_path}"), use) == "I"


@box
def test_a_body_that_the_engine_cannot_read_is_an_engine_failure(box_path: Path):
    entry = ModelEntry(spec=f"gguf/{box_path}", body={"temperature": "hot"})
    with pytest.raises(ModelError, match="temperature") as caught:
        ask(entry, make_call())
    assert caught.value.reason == "engine"


@box
def test_a_cancelled_call_ends_at_once(box_path: Path):
    async def use(model: Model) -> float:
        asking = asyncio.create_task(model.ask(make_call(max_tokens=4000, temperature=0.7)))
        await asyncio.sleep(0.7)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        started = time.perf_counter()
        await model.close()
        return time.perf_counter() - started

    entry = ModelEntry(spec=f"gguf/{box_path}", body={"ignore_eos": True})
    assert with_model(entry, use) < 10  # all 4000 tokens would take a minute


@box
def test_the_engine_says_nothing_on_the_terminal(box_path: Path, capfd: pytest.CaptureFixture[str]):
    ask(ModelEntry(spec=f"gguf/{box_path}"), make_call(max_tokens=2))
    assert capfd.readouterr() == ("", "")


@box
def test_nobody_else_on_this_machine_can_use_the_engine(box_path: Path, monkeypatch):
    engine, started = import_engine(), []

    class Watched(engine.Server):
        def __init__(self, params: object) -> None:
            started.append(self)

    monkeypatch.setattr(engine, "Server", Watched)

    def knock(address: str) -> None:
        for path in ("/v1/models", "/slots", "/props"):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(address + path, timeout=10)

    async def use(model: Model) -> None:
        await asyncio.to_thread(knock, started.pop().listening_address)

    with_model(ModelEntry(spec=f"gguf/{box_path}"), use)


@box
def test_the_header_reads_as_the_reference_reader_reads_it(box_path: Path):
    reference = pytest.importorskip("gguf").GGUFReader(box_path)
    header = read_header(box_path)
    assert header
    for key, value in header.items():
        if value is not None:
            assert value == reference.fields[key].contents()
    assert set(header) == {key for key in reference.fields if not key.startswith("GGUF.")}


@box
def test_a_file_that_is_cut_short_is_told_in_one_message(
    box_path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    short = tmp_path / "short.gguf"
    with box_path.open("rb") as whole:
        short.write_bytes(whole.read(4_000_000))
    message = refusal_to_open(ModelEntry(spec=f"gguf/{short}"))
    assert str(short) in message
    assert "damaged or cut short" in message
    assert capfd.readouterr() == ("", "")


def test_a_model_without_a_chat_template_is_not_given_a_wrong_one(tmp_path: Path):
    path = tmp_path / "base.gguf"
    path.write_bytes(BASE_MODEL)
    assert read_header(path) == {
        "general.architecture": "llama",
        "llama.context_length": 2048,
        "tokenizer.ggml.tokens": None,
        "tokenizer.ggml.scores": None,
        "tokenizer.ggml.add_bos_token": True,
    }
    message = refusal_to_open(ModelEntry(spec=f"gguf/{path}"))
    assert "no chat template" in message
    assert f"completions:gguf/{path}" in message


@dataclass(frozen=True)
class BadFile:
    id: str
    content: bytes
    says: str


BAD_FILES = [
    BadFile("empty", b"", "is not a GGUF file, or is damaged"),
    BadFile("text", b"once upon a time there was a file", "is not a GGUF file."),
    BadFile("an_older_form", gguf_bytes(version=1), "version 1"),
    BadFile("other_byte_order", gguf_bytes(version=3 << 24), "version 50331648"),
    BadFile("cut_in_the_header", BASE_MODEL[:50], "is damaged"),
    BadFile("cut_in_a_string", BASE_MODEL[:65], "is damaged"),
    BadFile("unknown_type", gguf_bytes(("key", 99, b"")), "is damaged"),
    BadFile("endless_string", gguf_bytes(("key", 8, b"\xff" * 8)), "is damaged"),
    BadFile("endless_list", gguf_bytes(("key", 9, struct.pack("<IQ", 8, 2**60))), "is damaged"),
]


@pytest.mark.parametrize("bad", BAD_FILES, ids=lambda bad: bad.id)
def test_a_file_that_is_no_gguf_is_named(bad: BadFile, tmp_path: Path):
    path = tmp_path / "model.gguf"
    path.write_bytes(bad.content)
    message = refusal_to_open(ModelEntry(spec=f"gguf/{path}"))
    assert str(path) in message
    assert bad.says in message


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    assert f"{tmp_path}/no.gguf: No such file" in refusal_to_open(
        ModelEntry(spec=f"gguf/{tmp_path}/no.gguf")
    )
    assert "Is a directory" in refusal_to_open(ModelEntry(spec=f"gguf/{tmp_path}"))


def test_without_the_extra_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingExtra, match=r"beacon-audit\[local\]"):
        asyncio.run(open_model(ModelEntry(spec="gguf/any.gguf"), ENVIRON, print))


@dataclass(frozen=True)
class SlotCase:
    id: str
    limit: int | None
    max_tokens: int | None
    trained: int | None
    slots: tuple[int, int]


SLOT_CASES = [
    SlotCase("usual", None, None, 8192, (4, 4096)),
    SlotCase("small_model", None, 1024, 2048, (4, 2048)),
    SlotCase("long_replies_get_fewer_slots", None, 16000, 131072, (1, 18048)),
    SlotCase("one_at_a_time", 1, None, 131072, (1, 4096)),
    SlotCase("many_at_once", 8, 500, None, (8, 4096)),
    SlotCase("too_many_at_once", 100, None, 131072, (8, 4096)),
    SlotCase("longer_than_memory_allows", None, 100_000, 131072, (1, 102_048)),
]


@pytest.mark.parametrize("case", SLOT_CASES, ids=lambda case: case.id)
def test_slots_hold_the_replies_that_are_asked_for(case: SlotCase):
    entry = ModelEntry(
        spec="gguf/x", limit=case.limit, sampling=Sampling(max_tokens=case.max_tokens)
    )
    n_slots, n_tokens = choose_slots(entry, case.trained)
    assert (n_slots, n_tokens) == case.slots
    assert n_slots == 1 or n_slots * n_tokens <= MOST_TOKENS


def test_threads_are_as_many_as_asked_for_or_as_cores_can_be_spared(
    monkeypatch: pytest.MonkeyPatch,
):
    assert choose_threads({"OMP_NUM_THREADS": "3"}) == 3
    assert choose_threads({"OMP_NUM_THREADS": "4,2"}) == 4
    unheard_of = set(range(90_000, 90_008))  # no topology: each is taken for a core
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: unheard_of, raising=False)
    assert choose_threads({"OMP_NUM_THREADS": "many"}) == 7
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {90_000})
    assert choose_threads({}) == 1
    monkeypatch.delattr(os, "sched_getaffinity")
    assert choose_threads({}) == -1


def test_a_joined_stream_keeps_reasoning_apart():
    chunks = [
        {"choices": [{"delta": {"role": "assistant", "content": None}}]},
        {"choices": [{"delta": {"reasoning_content": "Let me "}}]},
        {"choices": [{"delta": {"reasoning_content": "see."}}]},
        {"choices": [{"delta": {"content": "Yes"}}]},
        {"choices": [{"delta": {"content": "."}}]},
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}},
    ]
    reply = read_reply(join_chunks(chunks), latency=0.0)
    assert (reply.reasoning, reply.text, reply.finish_reason) == ("Let me see.", "Yes.", "stop")
    assert (reply.prompt_tokens, reply.completion_tokens) == (3, 5)


def test_an_error_in_the_middle_of_a_stream_is_an_engine_failure():
    chunks = [
        {"choices": [{"delta": {"content": "Yes"}}]},
        {"error": {"code": 500, "message": "the context is full", "type": "server_error"}},
    ]
    with pytest.raises(ModelError, match="the context is full") as caught:
        join_chunks(chunks)
    assert caught.value.reason == "engine"
    with pytest.raises(ModelError, match="no reply"):
        join_chunks([])
