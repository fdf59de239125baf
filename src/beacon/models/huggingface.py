"""A Hugging Face model, run in this process by transformers: a name, a folder, or a GGUF file.

What transformers does of its own accord, and a reader of its replies should know: some chat
templates add a system prompt of their own when a call has none, and sampling uses the model's own
generation settings where the study leaves them open, else top_k 50. A model's `body` is passed on
to `generate`, and its `chat_template_kwargs` to the template. Timeouts are not applied.
"""

from __future__ import annotations

import asyncio
import io
import logging
import math
import re
import secrets
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any, Final

from jinja2 import TemplateError

from beacon.errors import MissingExtra, ModelError, UsageError
from beacon.model import messages, plain_prompt, split_reasoning
from beacon.models.wire import LONGEST_QUOTE
from beacon.records import Call, Reply, TokenLogprob, storable
from beacon.spec import Spec
from beacon.study import ModelEntry

MOST_NEW_TOKENS: Final = 4096
"""Where neither the study nor the model sets an end."""
_GENERATING: Final = threading.Lock()
"""One model at a time: seeds work through random numbers that the whole process shares."""
_HUB_NAME: Final = re.compile(r"[\w.-]+(/[\w.-]+)?")


async def open_huggingface(
    entry: ModelEntry, spec: Spec, environ: Mapping[str, str], say: Callable[[str], None]
) -> HuggingFaceModel:
    """Load the model that the spec names, from this machine if it is there, else from the hub."""
    del environ
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError:
        raise MissingExtra("Running a Hugging Face model", "hf") from None
    say(f"Loading {spec.target} ...")
    tokenizer = await asyncio.to_thread(load, spec.target, AutoTokenizer, {}, say)
    if spec.api == "chat" and not tokenizer.chat_template:
        raise UsageError(
            f"{spec.target} has no chat template, as base models have none. To have it continue "
            f"plain text instead, write completions:hf/{spec.target}."
        )
    has_mps = torch.backends.mps.is_available()
    device = "auto" if torch.cuda.is_available() else "mps" if has_mps else None
    options = {"dtype": "auto", "device_map": device} if device else {"dtype": torch.float32}
    model = await asyncio.to_thread(load, spec.target, AutoModelForCausalLM, options, say)
    return HuggingFaceModel(tokenizer, model, entry, spec)


def load(target: str, kind: Any, options: dict[str, Any], say: Callable[[str], None]) -> Any:
    """A tokenizer or a model; asks the hub only for what is not on this machine."""
    name, gguf_file, is_folder = find_source(target)
    options = options | {"trust_remote_code": False, "gguf_file": gguf_file}

    def attempt(*, offline: bool) -> Any:
        with quiet(), redirect_stderr(io.StringIO()):  # some progress bars know no other way
            return kind.from_pretrained(name, local_files_only=offline, **options)

    try:
        try:
            return attempt(offline=True)
        except OSError:
            if is_folder:
                raise
        say(f"Fetching {target} from huggingface.co ...")
        return attempt(offline=False)
    except Exception as error:  # noqa: BLE001 - what loading a foreign file may raise is open
        reason = storable(" ".join(str(error).split()))[:LONGEST_QUOTE]
        raise UsageError(f"Cannot load the model {target}: {reason}") from None


def find_source(target: str) -> tuple[str, str | None, bool]:
    """A folder or a name at the hub, the GGUF file in it if any, and whether it is a folder."""
    path = Path(target).expanduser()
    gguf_file = path.name if target.endswith(".gguf") else None
    if path.is_file() if gguf_file else path.is_dir():
        return str(path.parent if gguf_file else path), gguf_file, True
    name = target.rpartition("/")[0] if gguf_file else target
    if not _HUB_NAME.fullmatch(name) or Path(name).is_dir():
        raise UsageError(f"There is no model {path}, nor can that be a name at huggingface.co.")
    return name, gguf_file, False


@contextmanager
def quiet() -> Iterator[None]:
    """No log lines and no warnings; all as before afterwards."""
    loggers = [logging.getLogger(name) for name in ("transformers", "huggingface_hub")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class HuggingFaceModel:
    """A model that answers one call at a time, in a thread of its own."""

    limit = 1

    def __init__(self, tokenizer: Any, model: Any, entry: ModelEntry, spec: Spec) -> None:
        self._tokenizer = tokenizer
        self._model = model
        self._name = spec.target
        self._is_chat = spec.api == "chat"
        self._extra = dict(entry.body)
        self._template_extra = self._extra.pop("chat_template_kwargs", {})
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hf")
        ends = model.generation_config.eos_token_id
        # Both, since some models are set to end at one token while their template ends at another.
        ends = {*(ends if isinstance(ends, list) else [ends]), tokenizer.eos_token_id} - {None}
        self._ends: list[int] = sorted(ends)

    async def ask(self, call: Call) -> Reply:
        """The model's reply; ends the generation when cancelled."""
        is_over, loop = threading.Event(), asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self._reply, call, is_over)
        finally:
            is_over.set()

    async def close(self) -> None:
        """End what is under way and free the memory."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        self._model = self._tokenizer = None

    def _reply(self, call: Call, is_over: threading.Event) -> Reply:
        started = time.perf_counter()
        tokens, logits, n_prompt = self._generate(call, is_over)
        has_ended = bool(tokens) and tokens[-1] in self._ends
        whole = self._text(tokens[:-1] if has_ended else tokens)
        cuts = [whole.index(stop) for stop in call.sampling.stop if stop in whole]
        cut, n_top = min(cuts, default=sys.maxsize), call.sampling.logprobs
        reasoning, text = split_reasoning(whole[:cut])
        return Reply(
            text=text if self._is_chat else text.strip(),
            reasoning=reasoning or None,
            finish_reason="stop" if has_ended or cuts else "length",
            prompt_tokens=n_prompt,
            completion_tokens=len(tokens),
            logprobs=None if n_top is None else self._logprobs(tokens, logits, n_top, cut),
            served_model=self._name,
            latency=time.perf_counter() - started,
        )

    def _generate(self, call: Call, is_over: threading.Event) -> tuple[list[int], Any, int]:
        """The new tokens, their logits if asked for, and how many tokens the prompt has."""
        from torch import cuda, manual_seed, random

        # A chat template writes the beginning-of-text token itself: it is not added again.
        prompt = self._tokenizer(
            self._prompt(call), add_special_tokens=not self._is_chat, return_tensors="pt"
        ).to(self._model.device)
        n_prompt = prompt["input_ids"].shape[1]
        seed = secrets.randbits(63) if call.sampling.seed is None else call.sampling.seed
        try:
            with _GENERATING, quiet(), random.fork_rng(range(cuda.device_count())):
                manual_seed(seed % 2**63)
                made = self._model.generate(
                    prompt["input_ids"],
                    attention_mask=prompt["attention_mask"],
                    stopping_criteria=[lambda *_, **__: is_over.is_set()],
                    **self._options(call, n_prompt) | self._extra,
                )
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise ModelError("engine", storable(str(error))[:LONGEST_QUOTE]) from None
        return made.sequences[0, n_prompt:].tolist(), made.logits, n_prompt

    def _prompt(self, call: Call) -> str:
        """The text to be continued, with the system prompt in it or not at all."""
        if not self._is_chat:
            return plain_prompt(call)
        try:
            prompt: str = self._tokenizer.apply_chat_template(
                messages(call), tokenize=False, add_generation_prompt=True, **self._template_extra
            )
        except TemplateError as error:
            raise ModelError("engine", f"the chat template refuses this call: {error}") from None
        if call.system.strip() not in prompt:
            raise ModelError("engine", "the chat template leaves out the system prompt")
        return prompt

    def _options(self, call: Call, n_prompt: int) -> dict[str, Any]:
        """The call's sampling as `generate` takes it; what is open stays the model's own."""
        sampling = call.sampling
        window = getattr(self._model.config.get_text_config(), "max_position_embeddings", None)
        n_room = window - n_prompt if window else MOST_NEW_TOKENS
        if n_room < 1:
            raise ModelError("engine", f"the prompt has {n_prompt} tokens; at most {window} fit")
        pads = (self._tokenizer.pad_token_id, *self._ends, 0)
        options: dict[str, Any] = {
            "max_new_tokens": min(sampling.max_tokens or n_room, n_room),
            "eos_token_id": self._ends or None,
            "pad_token_id": next(pad for pad in pads if pad is not None),
            "return_dict_in_generate": True,
            "output_logits": sampling.logprobs is not None,
        }
        if sampling.temperature == 0:
            options |= {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
        elif sampling.temperature is not None:
            options |= {"do_sample": True, "temperature": sampling.temperature}
        if sampling.top_p is not None and sampling.temperature != 0:
            options["top_p"] = sampling.top_p
        if sampling.stop:
            options |= {"stop_strings": list(sampling.stop), "tokenizer": self._tokenizer}
        return options

    def _text(self, tokens: list[int]) -> str:
        # A tag around reasoning stays, even where the tokenizer counts it as special.
        skip = "</think>" not in self._tokenizer.all_special_tokens
        return storable(self._tokenizer.decode(tokens, skip_special_tokens=skip))

    def _logprobs(
        self, tokens: list[int], logits: Any, n_top: int, n_characters: int
    ) -> tuple[TokenLogprob, ...]:
        """From the model's own distribution, before temperature and cut-offs."""
        read: list[TokenLogprob] = []
        for token, row in zip(tokens, logits, strict=True):
            said = self._text([token])
            n_characters -= len(said)
            if n_characters < 0:  # from here on, a stop string's
                break
            values = row[0].float().log_softmax(-1)
            top = values.topk(min(n_top, len(values)))
            pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
            others = tuple((self._text([other]), v) for other, v in pairs if math.isfinite(v))
            read.append(TokenLogprob(token=said, logprob=float(values[token]), top=others))
        return tuple(read)
