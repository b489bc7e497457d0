"""Models of a moment: random weights and a tokenizer of about 400 tokens, in the shapes that tests need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PYTHON_LINES = [
    "def add(a, b):\n    return a + b\n",
    "n = int(input())\nnumbers = list(map(int, input().split()))\nprint(sum(numbers))\n",
    "for i in range(10):\n    if i % 2 == 0:\n        print(i, end=' ')\n",
    "words = input().split()\nprint(' '.join(sorted(words, key=len)))\n",
    "while left < right:\n    middle = (left + right) // 2\n",
    "class Counter:\n    def __init__(self):\n        self.count = {}\n",
    "### Problem\nRead a number and print its square.\n\n### Solution\n",
]


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
    tokenizer.train_from_iterator(PYTHON_LINES * 4, trainer)
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
        # The usual initialization gives near-uniform output, where rounding decides which token is best.
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
    model.save_pretrained(folder, save_embedding_layers=False)  # as `save_adapter`
    return folder


def int8_of(linear: Any) -> Any:
    """The quantized twin of a linear layer."""
    from torch import nn

    from securecoderl_edge.models.int8 import Int8Linear

    layer = Int8Linear(linear.in_features, linear.out_features, bias=linear.bias is not None)
    layer.quantize(linear.weight.detach())
    if linear.bias is not None:
        layer.bias = nn.Parameter(linear.bias.detach(), requires_grad=False)
    return layer
