"""One string names a model: every shape, every preset, every mistake."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beacon.errors import UsageError
from beacon.spec import PRESETS, check_url, parse_spec


@dataclass(frozen=True)
class Case:
    text: str
    kind: str
    target: str
    url: str = ""
    key_env: str | None = None
    api: str = "chat"


SHAPES = [
    Case("smollm2", "box", "smollm2"),
    Case("gguf/models/qwen2.5-1.5b-q4_k_m.gguf", "gguf", "models/qwen2.5-1.5b-q4_k_m.gguf"),
    Case("gguf//abs/path.gguf", "gguf", "/abs/path.gguf"),
    Case("hf/Qwen/Qwen2.5-1.5B-Instruct", "hf", "Qwen/Qwen2.5-1.5B-Instruct"),
    Case("hf/./folder", "hf", "./folder"),
    Case("scripted/shy.yaml", "scripted", "shy.yaml"),
    Case("scripted/tests/shy.yaml", "scripted", "tests/shy.yaml"),
    Case(
        "http://127.0.0.1:8080/v1#name",
        "http",
        "name",
        "http://127.0.0.1:8080/v1",
        "BEACON_API_KEY",
    ),
    Case("https://host/v1", "http", "", "https://host/v1", "BEACON_API_KEY"),
    Case("https://host/v1/#a/b:c", "http", "a/b:c", "https://host/v1", "BEACON_API_KEY"),
    Case("https://host/v1/chat/completions#m", "http", "m", "https://host/v1", "BEACON_API_KEY"),
    Case("https://host/v1/completions/#m", "http", "m", "https://host/v1", "BEACON_API_KEY"),
    Case("http://[::1]:8080/v1#m", "http", "m", "http://[::1]:8080/v1", "BEACON_API_KEY"),
    Case("http://host:8080#m#n", "http", "m#n", "http://host:8080", "BEACON_API_KEY"),
    Case("modal/me--app#m", "http", "m", "https://me--app.modal.run/v1", "MODAL_API_KEY"),
    Case("modal/me--app", "http", "", "https://me--app.modal.run/v1", "MODAL_API_KEY"),
    Case("  smollm2\n", "box", "smollm2"),
]


@pytest.mark.parametrize("case", SHAPES, ids=lambda case: case.text.strip())
@pytest.mark.parametrize("api", ["chat", "completions"])
def test_every_shape_is_read(case: Case, api: str) -> None:
    prefix = "completions:" if api == "completions" else ""
    spec = parse_spec(prefix + case.text.lstrip() if prefix else case.text)
    assert (spec.kind, spec.target, spec.url, spec.key_env, spec.api) == (
        case.kind,
        case.target,
        case.url,
        case.key_env,
        api,
    )
    assert spec.preset is None


PRESET_ADDRESSES = {
    "anthropic": ("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
    "dashscope": (
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
    ),
    "deepseek": ("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "gemini": ("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "llamacpp": ("http://localhost:8080/v1", None),
    "mistral": ("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "ollama": ("http://localhost:11434/v1", None),
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "together": ("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "vllm": ("http://localhost:8000/v1", None),
}


@pytest.mark.parametrize("name", PRESET_ADDRESSES)
def test_a_preset_has_its_providers_address_and_key(name: str) -> None:
    spec = parse_spec(f"{name}/org/model:tag")
    assert (spec.kind, spec.target) == ("http", "org/model:tag")
    assert (spec.url, spec.key_env) == PRESET_ADDRESSES[name]
    assert spec.preset is PRESETS[name]


def test_every_preset_is_written_out_here() -> None:
    assert set(PRESETS) == set(PRESET_ADDRESSES)


@pytest.mark.parametrize("name", sorted(PRESET_ADDRESSES))
def test_a_key_leaves_the_machine_only_by_https(name: str) -> None:
    preset = PRESETS[name]
    assert preset.is_local == (preset.key_env is None)
    assert preset.url.startswith("http://localhost:" if preset.is_local else "https://")


PECULIARITIES = {
    "anthropic": ((), ("seed", "logprobs")),
    "deepseek": ((), ("seed",)),
    "mistral": ((("seed", "random_seed"),), ("logprobs",)),
    "openai": ((("max_tokens", "max_completion_tokens"),), ()),
}


@pytest.mark.parametrize("name", sorted(PRESET_ADDRESSES))
def test_what_a_provider_calls_otherwise_or_refuses_is_known(name: str) -> None:
    preset = PRESETS[name]
    assert (preset.parameters, preset.unsupported) == PECULIARITIES.get(name, ((), ()))


@dataclass(frozen=True)
class Bad:
    text: str
    words: str


BAD = [
    Bad("", "No model ''."),
    Bad("gpt-4o", "No model 'gpt-4o'."),
    Bad("/gpt-4o", "No model '/gpt-4o'."),
    Bad("openai", "Did you mean 'openai/NAME'?"),
    Bad("opnai/gpt-4o", "Did you mean 'openai/gpt-4o'?"),
    Bad("OpenAI/gpt-4o", "Did you mean 'openai/gpt-4o'?"),
    Bad("olama/llama3.2:1b", "Did you mean 'ollama/llama3.2:1b'?"),
    Bad("antropic/claude", "Did you mean 'anthropic/claude'?"),
    Bad("ggfu/a.gguf", "Did you mean 'gguf/a.gguf'?"),
    Bad("mdoal/me--app", "Did you mean 'modal/me--app'?"),
    Bad("smollm", "Did you mean 'smollm2'?"),
    Bad("smollm2/x", "Did you mean 'smollm2'?"),
    Bad("openai/", "write openai/NAME"),
    Bad("hf/", "write hf/NAME"),
    Bad("scripted/", "write scripted/NAME"),
    Bad("modal/", "write modal/NAME"),
    Bad("modal/#m", "write modal/WORKSPACE--APP#NAME"),
    Bad("completions:", "No model 'completions:'."),
    Bad("completions:completions:smollm2", "No model"),
    Bad("ftp://host/v1", "No model 'ftp://host/v1'."),
    Bad("http://", "has no host: write http://HOST:PORT/v1"),
    Bad("http:///v1#m", "has no host: write http://HOST:PORT/v1"),
    Bad("https://#m", "has no host: write http://HOST:PORT/v1"),
    Bad("http://[::1/v1#m", "is not a URL: write http://HOST:PORT/v1"),
    Bad("https://me:secret@host/v1", "holds a password"),
    Bad("https://me@host/v1", "holds a password"),
    Bad("https://:secret@host/v1", "holds a password"),
    Bad("completions:https://me:secret@host/v1", "holds a password"),
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.text)
def test_a_bad_spec_says_what_would_be_right(case: Bad) -> None:
    with pytest.raises(UsageError) as caught:
        parse_spec(case.text)
    assert case.words in str(caught.value)


def test_an_unknown_model_is_told_every_shape_there_is() -> None:
    with pytest.raises(UsageError) as caught:
        parse_spec("xyzzy")
    message = str(caught.value)
    assert "Did you mean" not in message
    for shape in ("smollm2", "gguf/PATH", "hf/NAME", "scripted/FILE", "modal/", "http://HOST"):
        assert shape in message
    for preset in PRESETS:
        assert f"{preset}/NAME" in message


@pytest.mark.parametrize(
    "url", ["https://me:secret@host/v1", "https://me:secret@[::1/v1", "ftp://me:secret@host"]
)
def test_a_password_is_not_repeated_in_the_complaint(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_url(url)
    assert "secret" not in str(caught.value)


def test_a_password_is_told_where_a_key_belongs() -> None:
    with pytest.raises(UsageError, match="set BEACON_API_KEY instead"):
        parse_spec("https://me:secret@host/v1#m")


@given(st.text(st.characters(), max_size=40) | st.from_regex(r"https?://\S{0,20}", fullmatch=True))
def test_any_string_is_a_spec_or_a_usage_error(text: str) -> None:
    try:
        spec = parse_spec(text)
    except UsageError:
        return
    assert spec.kind in ("http", "gguf", "hf", "box", "scripted")
    assert bool(spec.url) == (spec.kind == "http")
