"""Hugging Face models in this process: a tiny one made on the spot, and the real one in the box."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from beacon.errors import MissingExtra, ModelError
from beacon.model import Model, open_model, plain_prompt
from beacon.models.huggingface import find_source
from beacon.study import ModelEntry
from tests.models.conftest import (
    ASSISTANT,
    ENVIRON,
    ask,
    ask_all,
    make_call,
    refusal_to_open,
    with_model,
)

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TURNS = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
START = "{% if add_generation_prompt %}[assistant]{% endif %}"
TEMPLATES = {
    "chat": "{{ bos_token }}" + TURNS + START,
    "base": None,
    "refuses_system": "{{ bos_token }}{% if messages[0].role == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}" + TURNS + START,
    "drops_system": "{{ bos_token }}{% for m in messages if m.role == 'user' %}{{ m.content }}"
    "{% endfor %}" + START,
    "with_switch": "{{ bos_token }}" + TURNS + "{{ switch or '' }}" + START,
}
WINDOW = 4000


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama with random weights, once for each chat template."""
    root = tmp_path_factory.mktemp("hf")
    tokenizer = train_tokenizer()
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=WINDOW,
            initializer_range=0.5,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    for name, template in TEMPLATES.items():
        tokenizer.chat_template = template
        model.save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
    return root


def train_tokenizer() -> Any:
    """Bytes and a few merges; puts <s> in front of plain text, as Llama's does."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    trained.train_from_iterator(
        [ASSISTANT, "Who are you?"],
        trainers.BpeTrainer(
            vocab_size=300,
            special_tokens=["<s>", "</s>"],
            initial_alphabet=list("abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ[]?.:Ċ"),
            show_progress=False,
        ),
    )
    trained.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", trained.token_to_id("<s>"))]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=trained, bos_token="<s>", eos_token="</s>"
    )


def tiny(folders: Path, name: str = "chat", **more: Any) -> ModelEntry:
    return ModelEntry(spec=f"hf/{folders / name}", **more)


def copy_of(folders: Path, into: Path, **generation: Any) -> ModelEntry:
    """The tiny chat model with other generation settings."""
    shutil.copytree(folders / "chat", into)
    path = into / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | generation))
    return ModelEntry(spec=f"hf/{into}")


def test_a_chat_prompt_has_one_beginning_of_text(folders: Path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders / "chat")
    text = f"<s>[system]{ASSISTANT}[user]Who are you?[assistant]"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert ids.count(tokenizer.bos_token_id) == 1
    reply = ask(tiny(folders), make_call(max_tokens=1))
    assert reply.prompt_tokens == len(ids)


def test_plain_text_has_one_beginning_of_text_and_no_template(folders: Path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders / "base")
    ids = tokenizer(plain_prompt(make_call()))["input_ids"]
    assert ids.count(tokenizer.bos_token_id) == 1
    for name in ("base", "chat"):
        entry = ModelEntry(spec=f"completions:hf/{folders / name}")
        assert ask(entry, make_call(max_tokens=1)).prompt_tokens == len(ids)


def test_a_model_without_a_chat_template_is_not_given_a_wrong_one(folders: Path):
    message = refusal_to_open(tiny(folders, "base"))
    assert "no chat template" in message
    assert f"completions:hf/{folders / 'base'}" in message


@dataclass(frozen=True)
class TemplateCase:
    id: str
    says: str


TEMPLATE_CASES = [
    TemplateCase("refuses_system", "refuses this call: System role not supported"),
    TemplateCase("drops_system", "leaves out the system prompt"),
]


@pytest.mark.parametrize("case", TEMPLATE_CASES, ids=lambda case: case.id)
def test_a_system_prompt_is_never_dropped_in_silence(case: TemplateCase, folders: Path):
    async def use(model: Model) -> str | None:
        with pytest.raises(ModelError, match=case.says) as caught:
            await model.ask(make_call(max_tokens=1))
        assert caught.value.reason == "engine"
        return (await model.ask(make_call(system="", max_tokens=1))).finish_reason

    assert with_model(tiny(folders, case.id), use) == "length"


def test_temperature_0_is_greedy_whatever_the_seed(folders: Path):
    calls = [make_call(max_tokens=20, temperature=0.0, seed=seed) for seed in (1, 2)]
    first, second = ask_all(tiny(folders), calls)
    assert first.text == second.text
    assert (first.finish_reason, first.completion_tokens) == ("length", 20)
    assert first.served_model == str(folders / "chat")


def test_a_seed_decides_the_text_and_the_process_keeps_its_own_random_state(folders: Path):
    sampling = {"max_tokens": 20, "temperature": 1.5}
    calls = [make_call(seed=seed, **sampling) for seed in (1989, 1989, 1990, 2**63 + 1989)]
    before = torch.get_rng_state()
    again, first, other, wrapped = (reply.text for reply in ask_all(tiny(folders), calls))
    assert torch.equal(torch.get_rng_state(), before)
    assert again == first == wrapped
    assert other != first


def test_without_a_seed_texts_differ(folders: Path):
    calls = [make_call(max_tokens=20, temperature=1.5)] * 4
    assert len({reply.text for reply in ask_all(tiny(folders), calls)}) > 1


def test_what_the_study_leaves_open_is_the_models_own_setting(folders: Path, tmp_path: Path):
    greedy = ask(tiny(folders), make_call(max_tokens=20, temperature=0.0)).text
    open_call = make_call(max_tokens=20, seed=1)
    assert ask(tiny(folders), open_call).text == greedy
    samples = copy_of(folders, tmp_path / "samples", do_sample=True, temperature=1.5, top_k=0)
    assert ask(samples, open_call).text != greedy
    assert ask(samples, make_call(max_tokens=20, temperature=0.0)).text == greedy


def test_a_small_top_p_leaves_only_the_likeliest(folders: Path):
    greedy = make_call(max_tokens=20, temperature=0.0)
    nucleus = make_call(max_tokens=20, temperature=1.0, top_p=1e-6, seed=3)
    first, second = ask_all(tiny(folders), [greedy, nucleus])
    assert first.text == second.text


def test_an_end_token_ends_the_reply_and_is_left_out(folders: Path, tmp_path: Path):
    call = make_call(max_tokens=6, temperature=0.0, logprobs=0)
    whole = ask(tiny(folders), call)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders / "chat")
    third = next(
        token
        for token in range(2, len(tokenizer))
        if tokenizer.decode([token]) == whole.logprobs[2].token
    )
    assert whole.logprobs[2].token not in [token.token for token in whole.logprobs[:2]]
    reply = ask(copy_of(folders, tmp_path / "ends", eos_token_id=[third]), call)
    assert reply.text == "".join(token.token for token in whole.logprobs[:2])
    assert (reply.finish_reason, reply.completion_tokens) == ("stop", 3)


def test_a_stop_string_ends_the_reply_and_is_left_out(folders: Path):
    call = make_call(max_tokens=40, temperature=0.0)
    whole = ask(tiny(folders), call).text
    stop = whole[10:12]
    call = make_call(max_tokens=40, temperature=0.0, stop=(stop, "never"), logprobs=0)
    reply = ask(tiny(folders), call)
    assert reply.text == whole[: whole.index(stop)]
    assert reply.finish_reason == "stop"
    assert reply.text.startswith("".join(token.token for token in reply.logprobs))


def test_log_probabilities_are_those_of_a_plain_forward_pass(folders: Path):
    reply = ask(tiny(folders), make_call(max_tokens=2, temperature=0.7, seed=5, logprobs=3))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders / "chat")
    model = transformers.AutoModelForCausalLM.from_pretrained(folders / "chat")
    ids = tokenizer(
        f"<s>[system]{ASSISTANT}[user]Who are you?[assistant]",
        add_special_tokens=False,
        return_tensors="pt",
    )["input_ids"]
    with torch.no_grad():
        expected = model(ids).logits[0, -1].log_softmax(-1)
    first = reply.logprobs[0]
    by_text = {
        tokenizer.decode([token]): float(expected[token]) for token in range(2, len(tokenizer))
    }
    assert first.logprob == pytest.approx(by_text[first.token], abs=1e-4)
    assert [value for _, value in first.top] == pytest.approx(
        expected.topk(3).values.tolist(), abs=1e-4
    )
    assert len(reply.logprobs) == 2


def test_a_reply_without_max_tokens_ends_at_the_models_window(folders: Path):
    never_ending = tiny(folders, body={"suppress_tokens": [1]})
    reply = ask(never_ending, make_call("Who are you? " * 780, temperature=0.0))
    assert reply.prompt_tokens + reply.completion_tokens == WINDOW
    assert reply.completion_tokens > 20  # where transformers would end it by itself
    assert reply.finish_reason == "length"


def test_a_prompt_too_long_for_the_window_is_an_engine_failure(folders: Path):
    with pytest.raises(ModelError, match=f"at most {WINDOW} fit") as caught:
        ask(tiny(folders), make_call("Who are you? " * 5000))
    assert caught.value.reason == "engine"


def test_the_body_goes_to_generate_and_to_the_template(folders: Path):
    call = make_call(max_tokens=2, temperature=0.0)
    plain = ask(tiny(folders, "with_switch"), call)
    body = {"min_new_tokens": 2, "chat_template_kwargs": {"switch": "[now]"}}
    switched = ask(tiny(folders, "with_switch", body=body), call)
    assert switched.prompt_tokens > plain.prompt_tokens
    with pytest.raises(ModelError, match="no_such_option"):
        ask(tiny(folders, body={"no_such_option": 1}), call)


def test_a_cancelled_call_ends_at_once(folders: Path, tmp_path: Path):
    async def use(model: Model) -> float:
        asking = asyncio.create_task(model.ask(make_call(temperature=1.5)))
        await asyncio.sleep(0.5)
        assert not asking.done()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        started = time.perf_counter()
        await model.close()
        return time.perf_counter() - started

    entry = copy_of(folders, tmp_path / "endless", min_new_tokens=10**5)
    path = tmp_path / "endless" / "config.json"
    settings = json.loads(path.read_text()) | {"max_position_embeddings": 10**6}
    path.write_text(json.dumps(settings))
    assert with_model(entry, use) < 10


def test_nothing_is_printed(folders: Path, capfd: pytest.CaptureFixture[str]):
    ask(tiny(folders), make_call(max_tokens=2, temperature=0.0, stop=("zzz",), logprobs=1))
    refusal_to_open(ModelEntry(spec=f"hf/{folders}"))
    assert capfd.readouterr() == ("", "")


def test_a_folder_or_name_without_a_model_is_named(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "nobody/no-such-model" in refusal_to_open(ModelEntry(spec="hf/nobody/no-such-model"))
    assert f"{tmp_path}/none" in refusal_to_open(ModelEntry(spec=f"hf/{tmp_path}/none"))
    assert str(tmp_path) in refusal_to_open(ModelEntry(spec=f"hf/{tmp_path}"))
    assert "none.gguf" in refusal_to_open(ModelEntry(spec=f"hf/{tmp_path}/none.gguf"))


def test_a_target_is_a_folder_if_there_is_one_and_else_a_name(in_folder: Path):
    (in_folder / "org" / "model").mkdir(parents=True)
    (in_folder / "a.gguf").touch()
    assert find_source("org/model") == ("org/model", None, True)
    assert find_source("org/other") == ("org/other", None, False)
    assert find_source("gpt2") == ("gpt2", None, False)
    assert find_source("a.gguf") == (".", "a.gguf", True)
    assert find_source("org/other/b.gguf") == ("org/other", "b.gguf", False)


def test_without_the_extra_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"beacon-audit\[hf\]"):
        asyncio.run(open_model(ModelEntry(spec="hf/any"), ENVIRON, print))


@pytest.mark.box
@pytest.mark.slow
def test_transformers_and_llama_cpp_say_the_same_of_the_same_file(
    box_path: Path, capfd: pytest.CaptureFixture[str]
):
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    pytest.importorskip("xllamacpp")
    call = make_call("What is the capital of France?", max_tokens=12, temperature=0.0, logprobs=1)
    by_transformers = ask(ModelEntry(spec=f"hf/{box_path}"), call)
    by_llama_cpp = ask(ModelEntry(spec=f"gguf/{box_path}"), call)
    assert by_transformers.text == by_llama_cpp.text == "The capital of France is Paris."
    assert by_transformers.prompt_tokens == by_llama_cpp.prompt_tokens
    assert by_transformers.finish_reason == by_llama_cpp.finish_reason == "stop"
    assert by_transformers.logprobs[0].logprob == pytest.approx(
        by_llama_cpp.logprobs[0].logprob, abs=0.1
    )
    assert capfd.readouterr() == ("", "")
