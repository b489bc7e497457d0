"""Kernels and bytes of a decoding step on a GPU, by part, counted without one.

    python benchmarks/step_kernels.py --json benchmarks/results/step-kernels.json

The step runs on tensors without numbers (torch's device `meta`), of the shape of Qwen2.5-Coder-0.5B in bfloat16 with
LoRA apart, in the form that a CPU computes and in that for a GPU. Counted are the operations that start a kernel there:
those that are no views and do not only allocate; of those that are made of several, as many as torch's CUDA code has.
`rms_norm` (torch 2.9) and attention with a mask are one each. Not known here: products that cuBLAS splits in two.

Bytes are those that operations read and write, as if no cache held any. ``needed`` are the weights, the entries of the
KV cache and the logits, once; over 4.3 TB/s they give the shortest time of a step.

Then a rollout of a tiny model whose rows end at fixed lengths: how often the host reads, how many steps start kernel by
kernel, and how many are recorded, at the pace of a CPU, as every device had before, and at that of a GPU.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from random_model import make_model
from record import publish
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from securecoderl_edge.models import decoder as decoders
from securecoderl_edge.models.adapters import LoraSettings, add_adapters
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.drawing_batch import DrawingBatch
from securecoderl_edge.models.joined_linear import JoinedLinear
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.recorded_step import DecodingStep
from securecoderl_edge.models.sampling import Sampler, sample
from securecoderl_edge.models.sizes import CPU_PACE, GPU_PACE, Pace

QWEN_05B = {
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "intermediate_size": 4864,
    "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936,
    "max_position_embeddings": 32768, "rope_theta": 1000000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
}  # fmt: skip
ENTRIES, BANDWIDTH = 456, 4.3e12
PARTS = (
    "norms", "products", "LoRA", "rotary", "cache write", "attention", "MLP", "residual", "head", "drawing",
    "bookkeeping",
)  # fmt: skip
# Operations that launch nothing, and those that CUDA makes of several kernels.
FREE = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "_reshape_alias"}
MADE_OF = {"constant_pad_nd": 2, "logsumexp": 8}
# Of these only the rows that are named are read, and of the last only those are written.
PICKED, PUT = {"embedding", "index", "gather", "index_select"}, {"index_put_", "_index_put_impl_", "index_fill_"}
