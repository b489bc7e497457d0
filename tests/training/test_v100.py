"""The path of a V100 (compute capability 7.0) on a CPU: float16 products, int8 weights of our own, a scaled loss."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from small_runs import an_update
from torch.utils._python_dispatch import TorchDispatchMode

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.adapters import POLICY_ADAPTER, LoraSettings, adapter_parameters, add_adapters
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.device import Compute, compute_on_cuda
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.training.phase_settings import PpoSettings, SftSettings
from securecoderl_edge.training.update.learner import Learner, NotFiniteError, make_optimizer, make_value_head
from securecoderl_edge.training.update.ppo_update import ppo_update
from securecoderl_edge.training.update.supervised import sft_update

V100 = (7, 0)  # compute capability
PROBLEMS = [Problem(f"p{n}", f"Add {n}.", tests=(Test("1\n", f"{n}\n"),), solutions=("print(1)",)) for n in range(4)]
PPO = PpoSettings(
    batch_size=2, samples_per_prompt=1, advantage="gae", max_tokens=10, epochs=2, learning_rate=1e-3, kl_coefficient=0.1
)


def on_v100() -> Compute:
    """What a V100 would compute in, on the CPU."""
    return replace(compute_on_cuda(V100, "auto", recompute=True), device="cpu")


def make_learner(folder: Path, compute: Compute, optimizer: str = "adamw") -> Learner:
    model = add_adapters(
        load_base(folder, compute.base_precision, "cpu", compute.products), LoraSettings(rank=64), seed=3
    )
    head = make_value_head(model.config.hidden_size, 3)
    groups = [
        {"params": list(p), "lr": 1e-3} for p in (adapter_parameters(model, POLICY_ADAPTER).values(), head.parameters())
    ]
    decoder = Decoder(model, compute.rollout_dtype)
    return Learner(model, read_tokenizer(folder), compute, make_optimizer(optimizer, groups), decoder, head)


class NoBfloat16(TorchDispatchMode):
    """Raises where an operation makes a bfloat16 tensor."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for each in found if isinstance(found, (tuple, list)) else (found,):
            assert not (isinstance(each, torch.Tensor) and each.dtype == torch.bfloat16), f"{function} made bfloat16"
        return found


@pytest.fixture
def no_bitsandbytes_products(monkeypatch: pytest.MonkeyPatch) -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes")

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a product of bitsandbytes")

    for name in ("matmul", "matmul_4bit"):
        monkeypatch.setattr(bitsandbytes, name, refuse)
    for name in ("int8_linear_matmul", "int8_mixed_scaled_mm", "igemmlt"):
        monkeypatch.setattr(bitsandbytes.functional, name, refuse, raising=False)


def test_a_v100_gets_int8_weights_and_float16_products() -> None:
    compute = compute_on_cuda(V100, "auto")
    assert (compute.base_precision, compute.products, compute.rollout_dtype) == ("int8", torch.float16, torch.float16)
    assert compute_on_cuda((8, 0), "auto").products == torch.bfloat16
    assert compute_on_cuda((8, 0), "fp16").products == torch.float16


@pytest.mark.parametrize(("precision", "words"), [("bf16", "needs compute capability 8.0"), ("int8-bnb", "7.5")])
def test_what_a_v100_cannot_compute_is_refused_with_what_it_can(precision: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        compute_on_cuda(V100, precision)
    assert "int8" in str(caught.value)


def test_no_update_computes_in_bfloat16_or_by_bitsandbytes(
    tiny_qwen: Path, scorer: Scorer, no_bitsandbytes_products: None
) -> None:
    with NoBfloat16():
        learner = make_learner(tiny_qwen, on_v100())
        before = [parameter.clone() for parameter in adapter_parameters(learner.model, POLICY_ADAPTER).values()]
        supervised, _ = sft_update(learner, an_update(PROBLEMS, None, "sft", seed=0, sft=SftSettings(batch_size=2)))
        metrics, _ = ppo_update(learner, an_update(PROBLEMS, scorer, seed=0, ppo=PPO))
    assert metrics["val/first_ratio_error"] == 0
    assert metrics["loss_scale"] >= 1
    assert (supervised["skipped_steps"], metrics["skipped_steps"]) == (0, 0)
    after = adapter_parameters(learner.model, POLICY_ADAPTER).values()
    assert all(parameter.dtype == torch.float32 for parameter in after)
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_float16_gradients_that_would_vanish_survive_by_the_scale(tiny_model: Path) -> None:
    """A loss of 1e-6 has gradients that float16 rounds to zero; scaled and unscaled they are those of float32."""
    found = []
    for products in (torch.float32, torch.float16):
        learner = make_learner(tiny_model, Compute("cpu", "fp32", products))
        learner.optimizer = torch.optim.SGD(learner.optimizer.param_groups, lr=1.0)
        before = torch.cat([p.detach().flatten() for p in adapter_parameters(learner.model, POLICY_ADAPTER).values()])
        settings = SftSettings(batch_size=2)
        real = learner.backward
        learner.backward = lambda loss, real=real: real(1e-6 * loss)  # type: ignore[method-assign]
        sft_update(learner, an_update(PROBLEMS, None, "sft", seed=0, sft=settings))
        after = torch.cat([p.detach().flatten() for p in adapter_parameters(learner.model, POLICY_ADAPTER).values()])
        found.append((after - before).double())
    assert float(found[0].abs().max()) > 0
    assert float(found[0] @ found[1] / found[0].norm() / found[1].norm()) > 0.99


def test_gradients_that_overflow_at_every_scale_stop_the_run(tiny_model: Path) -> None:
    learner = make_learner(tiny_model, on_v100())
    parameter = next(iter(adapter_parameters(learner.model, POLICY_ADAPTER).values()))

    def overflow() -> None:
        learner.backward(parameter.sum())
        parameter.grad.fill_(float("inf"))  # type: ignore[union-attr]
        learner.step(1.0, {})

    for _ in range(16):  # from 2^16 to 1
        overflow()
    assert (learner.skipped_steps, learner.scaler.get_scale()) == (16, 1.0)
    with pytest.raises(NotFiniteError, match="at every loss scale"):
        overflow()


def test_a_value_that_float16_cannot_hold_is_named(tiny_model: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    for file in tiny_model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"] * 1e6
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(SceError, match=r"model\.norm\.weight has values outside the float16 range"):
        load_base(tmp_path, "fp16")


def test_an_8_bit_optimizer_keeps_bytes_and_learns(tiny_model: Path) -> None:
    pytest.importorskip("bitsandbytes")
    learner = make_learner(tiny_model, Compute("cpu", "fp32", torch.float32), "adamw8bit")
    made = an_update(PROBLEMS, None, "sft", seed=0, sft=SftSettings(batch_size=4))
    losses = [sft_update(learner, made)[0]["loss/sft"] for _ in range(8)]
    assert losses[-1] < losses[0]
    states = [value for state in learner.optimizer.state.values() for value in state.values()]
    assert any(isinstance(value, torch.Tensor) and value.dtype == torch.uint8 for value in states)


def test_bitsandbytes_int8_layers_train_with_a_ratio_of_one(tiny_model: Path) -> None:
    """On a CPU only to see that its layers pass through ours; `compute_on_cpu` refuses them."""
    pytest.importorskip("bitsandbytes")
    from securecoderl_edge.models.joined_linear import merged_weight
    from securecoderl_edge.models.sampling import Sampler, sample
    from securecoderl_edge.training.update.sequences import completion_log_probs, make_batch

    model = add_adapters(load_base(tiny_model, "int8-bnb", "cpu", torch.float32), LoraSettings(rank=4), seed=1)
    batch = make_batch([([5, 6, 7], [8, 9, 1]), ([4], [3, 2, 2, 1])], padding=0, device="cpu")
    compute = Compute("cpu", "int8-bnb", torch.float32)
    with torch.no_grad():
        old, _ = completion_log_probs(model, batch, 0.7, compute)
    new, _ = completion_log_probs(model, batch, 0.7, compute)
    assert torch.equal(old, new)
    found = torch.autograd.grad(new.sum(), list(adapter_parameters(model, POLICY_ADAPTER).values()))
    assert any(bool(gradient.any()) for gradient in found)
    plain = load_base(tiny_model).model.layers[0].self_attn.q_proj.weight
    merged = merged_weight(model.get_base_model().model.layers[0].self_attn.q_proj)
    torch.testing.assert_close(merged, plain, atol=0.02 * float(plain.abs().max()), rtol=0)
    greedy = Sampler(0.0, 8, frozenset({1}), torch.zeros(1, 8))
    assert sample(Decoder(model, torch.float32), [[5, 6, 7]], 1, greedy)[0].token_ids


def test_bitsandbytes_is_imported_by_whoever_needs_it_and_then_found(tiny_model: Path) -> None:
    """Also after a model without it in the same process; its import takes seconds."""
    pytest.importorskip("bitsandbytes")
    code = textwrap.dedent("""
        import sys
        from pathlib import Path
        from securecoderl_edge.models.adapters import LoraSettings, add_adapters
        from securecoderl_edge.models.loading import load_base
        for precision in ("fp32", "int8-bnb"):
            model = add_adapters(load_base(Path(sys.argv[1]), precision, "cpu"), LoraSettings(rank=4), seed=1)
            layer = model.get_base_model().model.layers[0].self_attn.q_proj
            print(precision, "bitsandbytes" in sys.modules, type(layer).__name__)
    """)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(tiny_model)], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["fp32 False Linear", "int8-bnb True Linear8bitLt"], done.stderr


def test_an_export_of_an_adapter_imports_no_bitsandbytes(tiny_model: Path, tmp_path: Path) -> None:
    """At its import it asks the hub for code, if the package ``kernels`` is there."""
    code = textwrap.dedent("""
        import sys
        from pathlib import Path
        from securecoderl_edge.export import merge, reference
        from securecoderl_edge.models.adapters import LoraSettings, add_adapters, save_adapter
        from securecoderl_edge.models.loading import load_base
        base, adapter, merged = map(Path, sys.argv[1:])
        adapter.mkdir()
        save_adapter(add_adapters(load_base(base), LoraSettings(rank=4), seed=1), adapter, "base")
        merge._merge_by_transformers(base, adapter, merged, "float32")
        print(type(reference._load_source(base, adapter)).__name__, "bitsandbytes" in sys.modules)
    """)
    command = [sys.executable, "-W", "ignore", "-c", code, str(tiny_model), str(tmp_path / "a"), str(tmp_path / "b")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["PeftModelForCausalLM False"], done.stderr


def test_the_plan_of_the_paper_s_recipe_needs_neither_gpu_nor_network_nor_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    from click.testing import CliRunner

    from securecoderl_edge.cli import sce

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("asked another machine")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    result = CliRunner().invoke(sce, ["train", "--recipe", "paper-v100", "--dry-run"], catch_exceptions=False)
    assert result.exit_code == 0
    for words in (
        "fits in 15.7 GiB", "1346.5 M parameters", "base weights in int8, computation in float16", "base weights",
        "update: activations", "no GPU that torch can use", "is not downloaded yet", "apps-plus-train.jsonl is missing",
    ):  # fmt: skip
        assert words in " ".join(result.stdout.split()), words
    assert list(tmp_path.iterdir()) == []


def test_shapes_of_the_recipes_have_the_parameters_that_their_makers_state() -> None:
    from securecoderl_edge.models.architecture import architecture_of
    from securecoderl_edge.training.base import known_shapes

    counts = {name: architecture_of(config, name).parameters() for name, config in known_shapes().items()}
    assert counts["deepseek-ai/deepseek-coder-1.3b-instruct"] == 1_346_471_936
    assert counts["Qwen/Qwen2.5-Coder-0.5B-Instruct"] == 494_032_768
    assert counts["Qwen/Qwen2.5-Coder-1.5B-Instruct"] == 1_543_714_304
