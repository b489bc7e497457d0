"""What several test files share: tiny models, made once a session, a sandbox, settings of small runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.training.settings import TrainSettings

if TYPE_CHECKING:
    from onnx_sources import Sources

# torch and llama.cpp both spin their threads, which on shared cores costs more than it gains.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

_PYTHON_LINES = [
    "def add(a, b):\n    return a + b\n",
    "n = int(input())\nnumbers = list(map(int, input().split()))\nprint(sum(numbers))\n",
    "for i in range(10):\n    if i % 2 == 0:\n        print(i, end=' ')\n",
    "words = input().split()\nprint(' '.join(sorted(words, key=len)))\n",
    "while left < right:\n    middle = (left + right) // 2\n",
    "class Counter:\n    def __init__(self):\n        self.count = {}\n",
    "### Problem\nRead a number and print its square.\n\n### Solution\n",
]

MakeModel = Callable[..., Path]


def train_tokenizer(folder: Path) -> int:
    """Write a byte-level BPE tokenizer of about 400 tokens to ``folder``; return its size."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<pad>", "<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_PYTHON_LINES * 4, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", "eos_token": "<eos>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return int(tokenizer.get_vocab_size())


def build_model(folder: Path, family: str = "llama", **changes: Any) -> Path:
    """Write a random Llama or Qwen2 of hidden size 64 with its tokenizer; ``changes`` are fields of its config."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    size = train_tokenizer(folder)
    settings: dict[str, Any] = {
        "vocab_size": size + 5,  # more rows than tokens, as real models have
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": 1,
        "pad_token_id": 0,
        # The usual initialisation gives near-uniform output, where rounding decides which token is best.
        "initializer_range": 0.2,
    }
    torch.manual_seed(7)
    if family == "llama":
        LlamaForCausalLM(LlamaConfig(**{**settings, **changes})).save_pretrained(folder)
        return folder
    model = Qwen2ForCausalLM(Qwen2Config(**{**settings, **changes}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.5)  # they begin as zeros, which would hide that they are left out
    model.save_pretrained(folder)
    return folder


def build_adapter(folder: Path, base: Path, **changes: Any) -> Path:
    """Write a LoRA adapter of rank 8 on all linear layers of ``base``, with random factors."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    settings: dict[str, Any] = {
        "r": 8,
        "lora_alpha": 16,
        "target_modules": "all-linear",
        "task_type": "CAUSAL_LM",
    }
    torch.manual_seed(11)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(**{**settings, **changes}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.2)
    model.save_pretrained(folder)
    return folder


def int8_of(linear: Any) -> Any:
    """The quantised twin of a linear layer."""
    from torch import nn

    from securecoderl_edge.models.int8 import Int8Linear

    layer = Int8Linear(linear.in_features, linear.out_features, bias=linear.bias is not None)
    layer.quantise(linear.weight.detach())
    if linear.bias is not None:
        layer.bias = nn.Parameter(linear.bias.detach(), requires_grad=False)
    return layer


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder: tied Llama of hidden size 64, 2 layers, byte-level BPE of about 400 tokens."""
    pytest.importorskip("torch", reason="needs the train extra")
    return build_model(tmp_path_factory.mktemp("tiny") / "tiny")


@pytest.fixture(scope="session")
def tiny_qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `tiny_model`, a Qwen2: biases in its attention, two query heads for each key."""
    pytest.importorskip("torch", reason="needs the train extra")
    return build_model(tmp_path_factory.mktemp("qwen") / "qwen", "qwen2", num_key_value_heads=2)


@pytest.fixture(scope="session")
def tiny_adapter(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA adapter on `tiny_model`, in PEFT format."""
    return build_adapter(tmp_path_factory.mktemp("adapter") / "adapter", tiny_model)


@pytest.fixture(scope="session")
def tiny_gguf(tiny_model: Path, tiny_adapter: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tiny_model` with `tiny_adapter` as a float32 GGUF file, not verified (test_gguf_export does that)."""
    pytest.importorskip("llama_cpp", reason="needs the gguf extra")
    from securecoderl_edge.export.gguf import write_gguf

    path = tmp_path_factory.mktemp("gguf") / "tiny-f32.gguf"
    write_gguf(tiny_model, tiny_adapter, "f32", path, "tiny")
    return path


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """Models of many shapes to make ONNX folders of."""
    from onnx_sources import Sources

    return Sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    """A sandbox for the tests of a file; files that try its limits have one of their own."""
    with Scorer(workers=2) as opened:
        yield opened


@pytest.fixture
def one_sandbox(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands use `scorer`: starting one for each test would take longer than the tests."""
    monkeypatch.setattr("securecoderl_edge.scoring.scorer.Scorer", lambda **_: nullcontext(scorer))


@pytest.fixture(scope="module")
def varied_reward() -> Iterator[None]:
    """Programs are paid by their length, see `small_runs.varied_reward`."""
    import small_runs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("securecoderl_edge.training.update.rollout.training_reward", small_runs.varied_reward)
        yield


@pytest.fixture(scope="module")
def settings(
    tiny_model: Path, varied_reward: None, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., TrainSettings]:
    """Makes settings of a run of seconds: overrides as ``--set`` takes them, flags by name."""
    from small_runs import PHASES, settings_maker, write_additions

    problems = write_additions(tmp_path_factory.mktemp("problems") / "problems.jsonl", tests=3)
    return settings_maker(tiny_model, problems, PHASES)
