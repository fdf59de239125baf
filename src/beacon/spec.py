"""One string names a model; this module reads it and knows the presets.

    openai/gpt-4o                     a preset, then the model's name there
    http://127.0.0.1:8080/v1#name     any OpenAI-compatible server; without `#name`, its only model
    modal/WORKSPACE--APP#name         https://WORKSPACE--APP.modal.run/v1
    gguf/PATH                         a GGUF file, run in this process
    hf/NAME                           a Hugging Face model or folder, run in this process
    smollm2                           the model in the box
    scripted/FILE                     replies from a file, for tests and teaching

`completions:` in front asks through plain completions instead of chat: for base models.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlsplit

from beacon.errors import UsageError

Kind = Literal["http", "gguf", "hf", "box", "scripted"]
Api = Literal["chat", "completions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A provider or server that is known by name."""

    url: str
    key_env: str | None
    """The environment variable that holds the key; None for servers that need none."""
    parameters: tuple[tuple[str, str], ...] = ()
    """Sampling parameters that go by another name there: (ours, theirs)."""
    unsupported: tuple[str, ...] = ()
    """Sampling parameters that the provider refuses; they are left out, and `plan` says so."""

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine."""
        return (urlsplit(self.url).hostname or "") in ("localhost", "127.0.0.1")


PRESETS: Final[dict[str, Preset]] = {
    "anthropic": Preset(
        url="https://api.anthropic.com/v1",
        key_env="ANTHROPIC_API_KEY",
        unsupported=("seed", "logprobs"),
    ),
    "dashscope": Preset(
        url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1", key_env="DASHSCOPE_API_KEY"
    ),
    "deepseek": Preset(
        url="https://api.deepseek.com/v1", key_env="DEEPSEEK_API_KEY", unsupported=("seed",)
    ),
    "gemini": Preset(
        url="https://generativelanguage.googleapis.com/v1beta/openai", key_env="GEMINI_API_KEY"
    ),
    "groq": Preset(url="https://api.groq.com/openai/v1", key_env="GROQ_API_KEY"),
    "llamacpp": Preset(url="http://localhost:8080/v1", key_env=None),
    "mistral": Preset(
        url="https://api.mistral.ai/v1",
        key_env="MISTRAL_API_KEY",
        parameters=(("seed", "random_seed"),),
        unsupported=("logprobs",),
    ),
    "ollama": Preset(url="http://localhost:11434/v1", key_env=None),
    "openai": Preset(
        url="https://api.openai.com/v1",
        key_env="OPENAI_API_KEY",
        parameters=(("max_tokens", "max_completion_tokens"),),
    ),
    "openrouter": Preset(url="https://openrouter.ai/api/v1", key_env="OPENROUTER_API_KEY"),
    "together": Preset(url="https://api.together.xyz/v1", key_env="TOGETHER_API_KEY"),
    "vllm": Preset(url="http://localhost:8000/v1", key_env=None),
}

URL_KEY_ENV: Final = "BEACON_API_KEY"
"""The key sent to servers that are given by URL, if it is set."""
MODAL_KEY_ENV: Final = "MODAL_API_KEY"
BOX: Final = "smollm2"
_SHAPES: Final = ("gguf/PATH", "hf/NAME", "scripted/FILE", "modal/WORKSPACE--APP#NAME")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A spec string, read."""

    kind: Kind
    target: str
    """The model's name at its server, or the path, folder or file."""
    api: Api = "chat"
    url: str = ""
    key_env: str | None = None
    preset: Preset | None = None


def parse_spec(text: str) -> Spec:
    """Read a spec string; a `UsageError` says what would be right."""
    api: Api = "chat"
    rest = text.strip()
    if rest.startswith("completions:"):
        api, rest = "completions", rest.removeprefix("completions:")
    if rest.startswith(("http://", "https://")):
        return _parse_url(rest, api)
    if rest == BOX:
        return Spec(kind="box", target=BOX, api=api)
    head, slash, tail = rest.partition("/")
    if slash and not tail:
        raise UsageError(f"Model {text!r} stops after the slash: write {head}/NAME.")
    if slash and head in PRESETS:
        preset = PRESETS[head]
        return Spec(
            kind="http", target=tail, api=api, url=preset.url, key_env=preset.key_env, preset=preset
        )
    if slash and head == "modal":
        return _parse_modal(tail, api)
    if slash and head == "gguf":
        return Spec(kind="gguf", target=tail, api=api)
    if slash and head == "hf":
        return Spec(kind="hf", target=tail, api=api)
    if slash and head == "scripted":
        return Spec(kind="scripted", target=tail, api=api)
    raise _unknown(text, head, tail)


def _parse_modal(text: str, api: Api) -> Spec:
    host, _, name = text.partition("#")
    if not host:
        raise UsageError(f"Model 'modal/{text}' names no app: write modal/WORKSPACE--APP#NAME.")
    url = f"https://{host}.modal.run/v1"
    return Spec(kind="http", target=name, api=api, url=url, key_env=MODAL_KEY_ENV)


def check_url(url: str) -> None:
    """A `UsageError` unless `url` is the address of a server, and holds no password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        shown = url.rpartition("@")[2]
        raise UsageError(f"{shown!r} is not a URL: write http://HOST:PORT/v1.") from None
    if parts.username or parts.password:
        raise UsageError(
            f"The URL for {parts.hostname} holds a password. Keys are not stored: take it out of "
            f"the URL and set {URL_KEY_ENV} instead."
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url!r} has no host: write http://HOST:PORT/v1.")


def _parse_url(text: str, api: Api) -> Spec:
    check_url(text)
    url, _, name = text.partition("#")
    url = url.rstrip("/")
    for ending in ("/chat/completions", "/completions"):
        url = url.removesuffix(ending)
    return Spec(kind="http", target=name, api=api, url=url, key_env=URL_KEY_ENV)


def _unknown(text: str, head: str, tail: str) -> UsageError:
    heads = (*PRESETS, "gguf", "hf", "modal", "scripted")
    known = {BOX: BOX} | {name: f"{name}/{tail or 'NAME'}" for name in heads}
    close = difflib.get_close_matches(head.lower(), known, n=1)
    hint = f" Did you mean {known[close[0]]!r}?" if close else ""
    presets = ", ".join(f"{name}/NAME" for name in PRESETS)
    return UsageError(
        f"No model {text!r}.{hint} A model is one of: {BOX}, {presets}, {', '.join(_SHAPES)}, "
        "or the URL of an OpenAI-compatible server as http://HOST:PORT/v1#NAME."
    )
