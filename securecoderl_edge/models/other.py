"""Models outside of `families`: transformers computes them with its own forward pass, slower and without memory plans.

No code from a model's folder runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securecoderl_edge.errors import SceError, UsageError, first_line
from securecoderl_edge.models.architecture import Architecture, read_architecture
from securecoderl_edge.models.files import weight_files

if TYPE_CHECKING:
    import torch

    from securecoderl_edge.models.sampling import Sampler, TokenCompletion


@dataclass(frozen=True)
class OtherArchitecture:
    """What is known of a model that transformers computes.

    Attributes:
        name: its class in transformers.
        reason: why it is not computed natively, one sentence.
        weights: number of parameters.
        linears: as `Architecture.lora_sizes`.
    """

    name: str
    reason: str
    context: int
    weights: int
    linears: dict[str, int]

    @property
    def note(self) -> str:
        """One line for users, wherever such a model is used."""
        return f"transformers computes {self.name}: slower, without a memory plan, and only --format hf exports it"

    def parameters(self) -> int:
        """Number of parameters of the model."""
        return self.weights

    def lora_sizes(self) -> dict[str, int]:
        """Outputs plus inputs, over all layers, of the linear layers by their last name."""
        return self.linears


def find_architecture(folder: Path) -> Architecture | OtherArchitecture:
    """The architecture of any model that transformers can load without code from its folder.

    Raises:
        UsageError: transformers does not know it, or it is not a causal language model.
        SceError: no readable config.json.
    """
    try:
        return read_architecture(folder)
    except UsageError as error:
        return _ask_transformers(folder, str(error), (folder / "config.json").stat().st_mtime_ns)


@lru_cache
def _ask_transformers(folder: Path, reason: str, _changed: int) -> OtherArchitecture:
    """Build the model without weights, once for several questions; ``_changed`` tells versions of config.json apart."""
    from securecoderl_edge.models.packages import require_torch

    require_torch()
    import torch
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        if getattr(config, "quantization_config", None):
            raise UsageError(reason)
        with init_empty_weights():
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False, dtype=torch.float32)
        model.tie_weights()
    except UsageError:
        raise
    except Exception as error:  # configurations fail in many ways, each with an exception of its own
        raise UsageError(f"{reason}. transformers cannot load it either ({first_line(error)})") from None
    if config.architectures and type(model).__name__ not in config.architectures:
        raise UsageError(f"{reason}. It is not a causal language model")
    text = config.get_text_config()
    context = next(
        (int(length) for key in _CONTEXT_KEYS if isinstance(length := getattr(text, key, None), int)), _NO_LIMIT
    )
    head = model.get_output_embeddings()
    linears: Counter[str] = Counter()
    for name, module in model.named_modules():
        if type(module).__name__ in ("Linear", "Conv1D") and module is not head:
            linears[name.rpartition(".")[2]] += sum(module.weight.shape)
    weights = sum(parameter.numel() for parameter in model.parameters())
    return OtherArchitecture(type(model).__name__, reason, context, weights, dict(linears))


_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len")
_NO_LIMIT = 1 << 20  # recurrent models have none


def load_other(folder: Path, precision: str, device: str) -> Any:
    """A model in ``fp32``, ``fp16``, ``bf16`` or, as far as its layers are `nn.Linear`, weight-only ``int8``.

    Raises:
        UsageError: ``int8-bnb``, or no safetensors files.
        SceError: the weights cannot be loaded.
    """
    import torch
    from transformers import AutoModelForCausalLM

    from securecoderl_edge.models.int8 import quantize_linears

    if precision == "int8-bnb":
        raise UsageError(f"{folder}: int8-bnb is not supported for this architecture. Use --base-precision int8")
    weight_files(folder)
    dtypes: dict[str, Any] = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtypes.get(precision, torch.float32), local_files_only=True, use_safetensors=True,
            trust_remote_code=False,
        )  # fmt: skip
    except Exception as error:  # each kind of damage has an exception of its own
        raise SceError(f"cannot load the weights of {folder}: {first_line(error)}") from None
    if precision == "int8":
        quantize_linears(model)
    return model.to(device)


def sample_with_generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    samples: int,
    sampler: Sampler,
    padding: int,
    parallel: int | None = None,
    autocast: AbstractContextManager[Any] | None = None,
) -> list[TokenCompletion]:
    """As `sampling.sample`, token by token through the ``generate`` of transformers.

    Each prompt is computed once for each of its samples, and a batch ends with its last completion.

    Args:
        padding: id of the padding token.
        parallel: completions decoded at a time, by default all.
    """
    import torch
    from transformers import GenerationConfig, LogitsProcessor, StoppingCriteria

    from securecoderl_edge.models.running_batch import left_padded
    from securecoderl_edge.models.sampling import PartialCompletions

    count = len(prompts) * samples
    completions = PartialCompletions(sampler, samples, model.dtype)
    width = min(count, parallel or count)

    class Draw(LogitsProcessor):  # type: ignore[misc, unused-ignore]
        """Leaves only the token that was drawn, which generate then takes for the most likely one."""

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            chosen = completions.draw(scores, owners)
            return torch.full_like(scores, float("-inf")).scatter_(1, chosen[:, None], 0.0)

    class Stop(StoppingCriteria):  # type: ignore[misc, unused-ignore]
        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
            return torch.tensor([owner in completions.done for owner in owners], device=input_ids.device)

    config = GenerationConfig(max_new_tokens=sampler.max_tokens, do_sample=False, pad_token_id=padding)
    for start in range(0, count, width):
        owners = list(range(start, min(start + width, count)))
        tokens, present = left_padded([prompts[owner // samples] for owner in owners], padding)
        with torch.no_grad(), autocast or nullcontext():
            model.generate(
                input_ids=tokens.to(model.device),
                attention_mask=present.long().to(model.device),
                generation_config=config,
                logits_processor=[Draw()],
                stopping_criteria=[Stop()],
            )
    return [completions.done[owner] for owner in range(count)]
