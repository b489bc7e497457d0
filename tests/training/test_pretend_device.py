"""Training as a GPU would do it, on the pretend device: the CPU's numbers, few reads, checkpoints that resume."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from once import Once
from other_models import MODELS, build_other
from pretend_device import NAME, BrokenRule, PretendTensor, expect_reads, pretend_device
from quick import few
from safetensors.torch import load_file
from small_runs import an_update, equal, rows
from tiny_families import FAMILIES, VARIED, build_family

from securecoderl_edge.errors import SceError
from securecoderl_edge.models import fused
from securecoderl_edge.models.adapters import POLICY_ADAPTER, LoraSettings, adapter_parameters, add_adapters
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.device import Compute
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.runs import Run
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.training.checkpoint import PhaseProgress, load_latest, save_checkpoint
from securecoderl_edge.training.phase import Stopped
from securecoderl_edge.training.phase_settings import PpoSettings, SftSettings
from securecoderl_edge.training.settings import TrainSettings
from securecoderl_edge.training.train import train
from securecoderl_edge.training.update import ppo, supervised
from securecoderl_edge.training.update.learner import Learner, make_optimizer, make_value_head
from securecoderl_edge.training.update.ppo_update import ppo_update
from securecoderl_edge.training.update.sequences import TokenBatch, make_batch

pytestmark = pytest.mark.usefixtures("varied_reward")

PROBLEMS = [
    Problem(f"p{n}", f"Add {n} to {'a' * n} number.", tests=(Test("1\n", f"{n}\n"),), solutions=("print(1)",))
    for n in range(4)
]
PPO = PpoSettings(batch_size=8, samples_per_prompt=4, max_tokens=10, epochs=2, micro_batch_tokens=100)
SFT = SftSettings(batch_size=4)
FP32 = Compute(NAME, "fp32", torch.float32)
V100 = Compute(NAME, "int8", torch.float16, torch.float16, recompute=True)
MATH = ("loss", "objective", "policy", "val", "grad_norm", "episode")


def make_learner(folder: Path, compute: Compute = FP32, value_head: bool = False, native: bool = True) -> Learner:
    base = load_base(folder, compute.base_precision, compute.device, compute.products)
    tensors = [*base.parameters(), *base.buffers()]
    expect_reads(sum(tensor.dtype == torch.float16 for tensor in tensors))  # whether it holds their values
    targets = LoraSettings().targets if native else MODELS["GPT-2"][2]
    model = add_adapters(base, LoraSettings(rank=4, targets=targets), seed=3)
    head = make_value_head(model.config.hidden_size, 3).to(compute.device) if value_head else None
    groups = [{"params": list(adapter_parameters(model, POLICY_ADAPTER).values()), "lr": 0.01}]
    groups += [{"params": list(head.parameters()), "lr": 0.01}] if head is not None else []
    decoder = Decoder(model, compute.rollout_dtype) if native else None
    return Learner(model, read_tokenizer(folder), compute, make_optimizer("adamw", groups), decoder, head)


def policy(learner: Learner) -> torch.Tensor:
    parts = (value.detach().cpu().flatten() for value in adapter_parameters(learner.model, POLICY_ADAPTER).values())
    return torch.cat(list(parts))


def learn(learner: Learner, scorer: Scorer, settings: PpoSettings = PPO, step: int = 1) -> dict[str, Any]:
    """An update of SFT, then one of PPO; the metrics of both. On a device their reads are counted."""
    sft = supervise(learner, settings, step)
    row, made = ppo_update(learner, an_update(PROBLEMS, scorer, step=step, ppo=settings))
    if learner.decoder is not None:  # transformers reads as it likes
        tokens = max(len(done.token_ids) for done in made.completions)
        expect_reads(reads_of_ppo(learner.compute, settings, tokens, "advantage_sum" in learner.running))
    return {**sft, **row}


def supervise(learner: Learner, ppo: PpoSettings = PPO, step: int = 1) -> dict[str, Any]:
    """An update of SFT; on a device its reads are counted."""
    row, _ = supervised.sft_update(learner, an_update(PROBLEMS, None, "sft", step=step, ppo=ppo, sft=SFT))
    if learner.decoder is not None:
        expect_reads(reads_of_steps(learner.compute, 1))
    return row


def reads_of_ppo(compute: Compute, settings: PpoSettings, tokens: int, running: bool) -> int:
    """Of sampling: the time of the prompts, and the tokens of each step.

    Of learning: whether log-probabilities are finite, twice; metrics, of each step and of all, and the KL; the scale
    of earlier updates of small batches, which is kept as a number.
    """
    steps = settings.epochs * settings.minibatches
    return 1 + tokens + 2 + steps + 2 + running + reads_of_steps(compute, steps)


def reads_of_steps(compute: Compute, steps: int) -> int:
    """Of each step of the optimizer: whether loss and gradient are finite.

    In float16 also whether the gradient overflowed, and the scale of the loss before and after; once more for metrics.
    """
    return 4 * steps + 1 if compute.products == torch.float16 else steps


def on_both(make: Callable[[Compute], Learner], act: Callable[[Learner], dict[str, Any]]) -> None:
    """Check that ``act`` gives a learner the same metrics and the same policy on the device and on the CPU."""
    found = []
    for place in (FP32, replace(FP32, device="cpu")):
        with pretend_device() if place.is_accelerator else nullcontext():
            learner = make(place)
            # Adam would make a step of the same length of a gradient that is zero but for rounding.
            learner.optimizer = torch.optim.SGD(learner.optimizer.param_groups)
            row = act(learner)
            found.append(({key: value for key, value in row.items() if key.startswith(MATH)}, policy(learner)))
    (there, moved), (here, expected) = found
    assert there == pytest.approx(here, rel=2e-3, abs=2e-4)
    torch.testing.assert_close(moved, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        PPO,
        replace(PPO, advantage="gae"),
        pytest.param(replace(PPO, advantage="batch"), marks=pytest.mark.slow),
        pytest.param(replace(PPO, minibatches=2), marks=pytest.mark.slow),
    ],
)
def test_updates_on_a_device_are_those_on_the_cpu(tiny_qwen: Path, scorer: Scorer, settings: PpoSettings) -> None:
    on_both(
        lambda place: make_learner(tiny_qwen, place, settings.advantage == "gae"),
        lambda learner: learn(learner, scorer, settings),
    )


@pytest.mark.parametrize("family", few(FAMILIES, *VARIED))
def test_every_family_learns_on_a_device_what_it_learns_on_the_cpu(family: str, once: Once) -> None:
    folder = once(f"family-{family}", lambda folder: build_family(folder, family))
    on_both(
        lambda place: make_learner(folder, place),
        supervise,
    )


@pytest.mark.parametrize("advantage", few(["rloo", "gae", "batch"], "gae"))
@pytest.mark.parametrize("compute", [V100, Compute(NAME, "bf16", torch.bfloat16, torch.bfloat16)])
def test_products_in_16_bits_obey_the_rules_of_a_gpu(
    tiny_qwen: Path, scorer: Scorer, compute: Compute, advantage: str
) -> None:
    """On a V100: an int8 base, a scaled loss, layers computed again."""
    with pretend_device():
        learner = make_learner(tiny_qwen, compute, advantage == "gae")
        before = policy(learner)
        row = learn(learner, scorer, replace(PPO, advantage=advantage))
        assert not torch.equal(policy(learner), before)
    assert row["val/first_ratio_error"] == 0
    assert row.get("skipped_steps", 0) == 0


def test_a_batch_of_two_learns_from_its_running_scale(tiny_qwen: Path, scorer: Scorer) -> None:
    settings = replace(PPO, batch_size=2, samples_per_prompt=1, advantage="gae")
    on_both(lambda place: make_learner(tiny_qwen, place, True), lambda learner: learn(learner, scorer, settings))


def test_a_model_of_transformers_learns_on_a_device(once: Once, scorer: Scorer) -> None:
    folder = once("other-gpt2", lambda folder: build_other(folder, "GPT-2"))
    on_both(lambda place: make_learner(folder, place, native=False), lambda learner: learn(learner, scorer))


@pytest.mark.parametrize("micro_batch_tokens", [100, 1000])
@pytest.mark.parametrize("compute", few([FP32, V100], FP32))
def test_reads_of_an_update_depend_on_its_steps_and_not_on_its_pieces(
    tiny_qwen: Path, scorer: Scorer, compute: Compute, micro_batch_tokens: int
) -> None:
    with pretend_device():
        learner = make_learner(tiny_qwen, compute, value_head=True)
        ppo = replace(PPO, advantage="gae", epochs=3, minibatches=2, micro_batch_tokens=micro_batch_tokens)
        learn(learner, scorer, ppo)  # counts them


@pytest.mark.parametrize("compute", few([FP32, V100], V100))
def test_a_checkpoint_of_a_device_resumes_there_bit_for_bit(
    tiny_qwen: Path, scorer: Scorer, tmp_path: Path, compute: Compute
) -> None:
    settings = replace(PPO, advantage="gae")
    with pretend_device():
        learner, again = (make_learner(tiny_qwen, compute, value_head=True) for _ in range(2))
        learn(learner, scorer, settings)
        save_checkpoint(tmp_path, learner, PhaseProgress(1), "base", {}, ())
        saved = [value for file in tmp_path.rglob("*.safetensors") for value in load_file(file).values()]
        tensors = sum(value.dim() > 0 for value in saved)  # the others, numbers of steps, are on the CPU
        expect_reads(tensors + 2 * (compute.products == torch.float16))  # the scale of the loss, and since when
        load_latest(tmp_path, again, {})
        states = [value for state in again.optimizer.state.values() for name, value in state.items() if name != "step"]
        assert all(isinstance(state, PretendTensor) for state in states)
        rows = [learn(each, scorer, settings, 2) for each in (learner, again)]
        assert torch.equal(policy(learner), policy(again))
    assert rows[0]["loss/policy"] == rows[1]["loss/policy"]
    assert rows[0].get("loss_scale") == rows[1].get("loss_scale")


def test_a_checkpoint_of_a_device_can_be_read_on_the_cpu(tiny_qwen: Path, scorer: Scorer, tmp_path: Path) -> None:
    with pretend_device():
        learner = make_learner(tiny_qwen, value_head=True)
        learn(learner, scorer)
        save_checkpoint(tmp_path, learner, PhaseProgress(1), "base", {}, ())
        expected = policy(learner)
    here = make_learner(tiny_qwen, replace(FP32, device="cpu"), value_head=True)
    load_latest(tmp_path, here, {})
    assert torch.equal(policy(here), expected)


def run_on(compute: Compute, patch: pytest.MonkeyPatch) -> None:
    """Let training choose the device."""
    patch.setattr("securecoderl_edge.training.train.choose_compute", lambda *_, **__: compute)
    patch.setattr("securecoderl_edge.training.resources.memory_limit", lambda *_: 1 << 40)
    patch.setattr("securecoderl_edge.training.resources.require_free_memory", lambda *_: None)
    patch.setattr(torch.cuda, "get_device_name", lambda: NAME)


def test_a_run_on_a_device_that_was_stopped_resumes_bit_for_bit(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of training, from loading to the published policy, as on a V100."""
    run_on(V100, monkeypatch)
    config = epoch_settings("ppo.advantage=gae", "sft.steps=2", "binary.steps=2", phases=("sft", "binary"))
    asked = iter((False, False, True))

    def counted(row: dict[str, Any]) -> None:
        steps = 1 if row["phase"] == "sft" else config.ppo.epochs
        of_update = reads_of_steps(V100, steps)
        if row["phase"] != "sft":
            of_update = reads_of_ppo(V100, config.ppo, config.ppo.max_tokens, False)
            assert row["truncated_rate"] > 0, "one completion has all tokens"
        if row["step"] == 2:  # nothing was loaded or saved since the first
            expect_reads(of_update)
        watch.reads.clear()

    with pretend_device() as watch:
        whole = train(config, tmp_path / "a" / "whole", log=counted)
        with pytest.raises(Stopped):
            train(config, tmp_path / "b" / "parts", should_stop=lambda: next(asked))
        parts = train(config, tmp_path / "b" / "parts")
    assert equal(parts.policy, whole.policy)
    assert [row["grad_norm"] for row in rows(parts)] == [row["grad_norm"] for row in rows(whole)]


# Of a run whose device vanishes: a checkpoint an update.
VANISHING = ("sft.steps=1", "binary.steps=3", "ppo.epochs=1", "checkpoint_every=1")


@pytest.fixture(scope="module")
def uninterrupted(epoch_settings: Callable[..., TrainSettings], once: Once) -> Run:
    """The run; the operations until each update was done, and to the end, are in ``operations.json``."""

    def make(folder: Path) -> None:
        counts: list[int] = []
        with pytest.MonkeyPatch.context() as patch, pretend_device() as watch:
            run_on(FP32, patch)
            settings = epoch_settings(*VANISHING, phases=("sft", "binary"))
            train(settings, folder / "run", log=lambda _: counts.append(watch.operations))
            counts.append(watch.operations)
        (folder / "operations.json").write_text(json.dumps(counts))

    return Run(once("uninterrupted-on-a-device", make) / "run")


@pytest.mark.parametrize(
    ("armed", "share"),
    [
        *((2, 0.7), (3, 0.3)),
        *(pytest.param(2, share, marks=pytest.mark.slow) for share in (0.1, 0.3, 0.5, 0.6, 0.8, 0.9, 0.999)),
    ],
)
def test_a_device_that_vanishes_leaves_the_last_checkpoint_and_the_run_resumes_bit_for_bit(
    epoch_settings: Callable[..., TrainSettings],
    uninterrupted: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    armed: int,
    share: float,
) -> None:
    """After a part of the operations of the third update, or of the checkpoint and the policies that follow it."""
    run_on(FP32, monkeypatch)
    config, run = epoch_settings(*VANISHING, phases=("sft", "binary")), Run(tmp_path / "run")
    last = "phases/2-binary/checkpoints/step-000002"
    counts = json.loads((uninterrupted.path.parent / "operations.json").read_text())
    before, after = counts[armed : armed + 2]  # of the row of SFT and of three updates

    def vanish(row: dict[str, Any]) -> None:
        if (row["phase"], row["step"]) == ("binary", armed):
            watch.vanish(int(share * (after - before)))

    with pretend_device() as watch, pytest.raises(SceError) as caught:
        train(config, run.path, log=vanish)
    message = str(caught.value)
    assert "the GPU failed in binary update 3 of 3 (CUDA error: unspecified launch failure)" in message
    assert f"{run.path / last} is intact: run the same command to resume" in message
    assert len(watch.failures) == 1  # nothing was asked of it any more
    assert sorted(path.name for path in (run.path / last).parent.iterdir()) == ["step-000001", "step-000002"]
    for file in (uninterrupted.path / last).glob("*.safetensors"):
        assert (run.path / last / file.name).read_bytes() == file.read_bytes()
    with pretend_device():
        train(config, run.path)
    assert equal(run.policy, uninterrupted.policy)
    assert [row["grad_norm"] for row in rows(run)] == [row["grad_norm"] for row in rows(uninterrupted)]


# Faults in the code of an update. On a CPU every one of them goes unseen.


def update(folder: Path, scorer: Scorer, compute: Compute = FP32) -> None:
    with pretend_device():
        learn(make_learner(folder, compute), scorer)


def test_a_batch_that_stays_on_the_cpu_is_found(
    tiny_qwen: Path, scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stays(pairs: Any, padding: int, device: Any) -> TokenBatch:
        return make_batch(pairs, padding, "cpu")

    monkeypatch.setattr(supervised, "make_batch", stays)
    with pytest.raises(BrokenRule, match=r"transformer.py:hidden_states: .*embedding.* on the device and on the CPU"):
        update(tiny_qwen, scorer)


def test_a_weight_in_another_dtype_than_its_input_is_found(
    tiny_qwen: Path, scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wide(self: fused.Projection, dtype: torch.dtype, real: Any = fused.Projection.weight) -> torch.Tensor:
        weight: torch.Tensor = real(self, torch.float32)
        return weight

    monkeypatch.setattr(fused.Projection, "weight", wide)
    update(tiny_qwen, scorer)
    with pytest.raises(BrokenRule, match=r"packed_linear: .* multiplies torch.float16 and torch.float32"):
        update(tiny_qwen, scorer, V100)


def test_a_number_read_for_every_piece_of_a_batch_is_found(
    tiny_qwen: Path, scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ppo, "masked_mean", lambda values, mask, real=ppo.masked_mean: values.sum() / mask.sum().item())
    with pytest.raises(BrokenRule, match=r"reads of the device, not \d+:\n(.*\n)*\d+ in .*:policy_loss"):
        update(tiny_qwen, scorer)


def test_a_constant_in_float64_is_found(tiny_qwen: Path, scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    def shaped(*args: Any, real: Any = ppo.kl_shaped_rewards) -> torch.Tensor:
        rewards: torch.Tensor = real(*args)
        return rewards * torch.tensor(1.0, dtype=torch.float64, device=rewards.device)

    monkeypatch.setattr(ppo, "kl_shaped_rewards", shaped)
    with pytest.raises(BrokenRule, match=r"ppo.py:.* has float64 on the device"):
        update(tiny_qwen, scorer)
