"""A whole run against a real llama.cpp server over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import beacon
from beacon.records import Reply
from beacon.study_file import read_study

pytestmark = pytest.mark.box

STUDY = """
beacon: 1
name: over-http
framings: {{neutral: You are a helpful assistant., china: You are a helpful assistant in China.}}
questions:
  - {{id: capital, text: "What is the capital of France?"}}
  - {{id: control, text: "Who are you?", control: true}}
models:
  - {{spec: "{url}", name: over-http, limit: 2}}
  - {{spec: "completions:{url}", name: plain, limit: 2}}
sampling: {{temperature: 0, max_tokens: 40, seed: 1, logprobs: 3}}
"""


@pytest.fixture(scope="module")
def llamacpp(box_path: Path) -> Iterator[str]:
    """The base URL of a llama.cpp server that asks for a key."""
    xllamacpp = pytest.importorskip("xllamacpp", reason="pip install 'beacon-audit[local]'")
    params = xllamacpp.CommonParams()
    params.model.path = str(box_path)
    params.n_ctx, params.n_parallel, params.verbosity, params.port = 4096, 2, 0, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.api_keys = ["a-key-for-the-test"]
    server = xllamacpp.Server(params)
    yield f"{server.listening_address}/v1"
    del server


def test_a_run_over_http(llamacpp: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("BEACON_API_KEY", "a-key-for-the-test")
    run = beacon.run(read_study(STUDY.format(url=llamacpp)), into=tmp_path / "r")
    replies = {
        (stored.model, stored.framing_id, stored.question_id): stored.response
        for stored, _ in run.responses()
    }
    assert len(replies) == 8
    assert all(isinstance(reply, Reply) for reply in replies.values())
    said = replies["over-http", "neutral", "capital"]
    assert isinstance(said, Reply)
    assert "Paris" in said.text
    assert said.finish_reason in ("stop", "length")
    assert said.prompt_tokens
    assert said.completion_tokens
    assert said.served_model
    assert said.logprobs is not None
    assert len(said.logprobs[0].top) == 3
    assert said.logprobs[0].logprob <= 0


def test_a_wrong_key_is_a_technical_failure_that_names_it(llamacpp, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("BEACON_API_KEY", "wrong")
    study = read_study(STUDY.format(url=f"{llamacpp}#smollm"))
    run = beacon.run(study, into=tmp_path / "r")
    assert run.findings.by_framing[0].tally.n_answered == 0
    statuses = {name for row in run.findings.statuses for name in row.counts}
    assert statuses == {"http_error"}
