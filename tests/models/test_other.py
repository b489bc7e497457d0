"""Models outside of the families: computed by transformers, with the same meaning as the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
import transformers
from once import Once
from other_models import MODELS, build_other
from transformers.utils import import_utils

from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.adapters import (
    POLICY_ADAPTER,
    LoraSettings,
    adapter_parameters,
    add_adapters,
    check_targets,
)
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.other import OtherArchitecture, find_architecture
from securecoderl_edge.runtimes.hf import HfRuntime
from securecoderl_edge.runtimes.protocol import Sampling
from securecoderl_edge.training.update.sequences import completion_log_probs, make_batch


@pytest.fixture(params=MODELS)
def other(request: pytest.FixtureRequest, once: Once) -> tuple[str, Path]:
    return request.param, once(f"other-{request.param}", lambda folder: build_other(folder, request.param))


def adapted(name: str, folder: Path, precision: str = "fp32") -> Any:
    model = add_adapters(load_base(folder, precision), LoraSettings(rank=4, targets=MODELS[name][2]), seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in adapter_parameters(model, POLICY_ADAPTER).values():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return model


def test_log_probs_of_padded_completions_and_their_gradients_are_those_of_single_ones(other: tuple[str, Path]) -> None:
    model = adapted(*other)
    pairs = [([5, 6, 7, 30, 31], [8, 9, 1]), ([4, 12], [3, 2, 2, 40, 41, 42, 1]), ([5, 6, 7, 30, 31], [3, 3, 1])]
    batch = make_batch(pairs, padding=0, device="cpu")
    found, hidden = completion_log_probs(model, batch, 0.7)
    assert len(hidden) == batch.mask.sum()
    expected = torch.zeros_like(found)
    for row, (prompt, completion) in enumerate(pairs):
        logits = model(input_ids=torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1] / 0.7
        chosen = logits.log_softmax(-1).gather(-1, torch.tensor(completion)[:, None])[:, 0]
        expected = expected.index_put((torch.tensor(row), torch.arange(len(completion))), chosen)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    parameters = list(adapter_parameters(model, POLICY_ADAPTER).values())
    for own, their in zip(
        torch.autograd.grad(found.sum(), parameters), torch.autograd.grad(expected.sum(), parameters), strict=True
    ):
        torch.testing.assert_close(own, their, atol=1e-4 * max(1.0, float(their.abs().max())), rtol=1e-4)


def test_the_runtime_answers_as_generate_does_and_repeats_itself(other: tuple[str, Path]) -> None:
    _, folder = other
    runtime = HfRuntime(str(folder), threads=1, parallel=3)
    prompts = ["n = int(input())\n", "for i in range(10):", "print"]
    greedy = runtime.generate(prompts, 1, Sampling(0.0, 12))
    model = load_base(folder)
    for prompt, (done,) in zip(prompts, greedy, strict=True):
        ids = torch.tensor([runtime._tokenizer.encode_prompt(prompt)])
        expected = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, pad_token_id=0,
            eos_token_id=1,
        )  # fmt: skip
        assert list(done.token_ids) == expected[0, ids.shape[1] :].tolist()
    drawn = runtime.generate(prompts, 2, Sampling(1.0, 12, seed=3))
    assert drawn[0][0].token_ids != drawn[0][1].token_ids
    again = HfRuntime(str(folder), threads=1, parallel=6).generate(prompts, 2, Sampling(1.0, 12, seed=3))
    assert [[done.text for done in row] for row in drawn] == [[done.text for done in row] for row in again]


@pytest.mark.parametrize("name", ["StarCoder2", "GPT-2"])
def test_other_models_load_in_eight_bits_and_in_bfloat16(name: str, once: Once) -> None:
    folder = once(f"other-{name}", lambda made: build_other(made, name))
    prompt = torch.tensor([[5, 6, 7, 30, 31]])
    expected = load_base(folder)(input_ids=prompt).logits
    for precision in ("bf16", "int8"):
        found = load_base(folder, precision)(input_ids=prompt).logits.float()
        assert float((found - expected).abs().max()) < 0.1 * float(expected.abs().max())


def test_a_model_is_described_by_what_transformers_makes_of_it(other: tuple[str, Path]) -> None:
    name, folder = other
    shape = find_architecture(folder)
    assert isinstance(shape, OtherArchitecture)
    assert shape.parameters() == sum(parameter.numel() for parameter in load_base(folder).parameters())
    check_targets(LoraSettings(targets=MODELS[name][2]), shape.lora_sizes())
    with pytest.raises(UsageError, match=r"no linear layer nothing\. Choose from .*--set 'lora\.targets"):
        check_targets(LoraSettings(targets=("nothing",)), shape.lora_sizes())


def test_code_in_a_model_folder_never_runs(once: Once, tmp_path: Path) -> None:
    folder = build_other(tmp_path / "model", "GPT-2")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "evil", "architectures": ["Evil"], "auto_map": {
        "AutoConfig": "evil.EvilConfig", "AutoModelForCausalLM": "evil.Evil"}}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    with pytest.raises(UsageError, match="architecture Evil is not supported"):
        load_base(folder)
    assert not (tmp_path / "ran").exists()


def test_code_of_the_hub_that_a_model_folder_names_never_runs(tmp_path: Path) -> None:
    """Nor is it downloaded, though the package with which transformers does both is there."""
    folder = build_other(tmp_path / "model", "GPT-2")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"attn_implementation": "kernels-community/evil"}))
    packages, version = tmp_path / "packages", import_utils.KERNELS_MIN_VERSION
    (packages / "kernels").mkdir(parents=True)
    (packages / "kernels" / "__init__.py").write_text("def __getattr__(name):\n    print(name)\n    return print\n")
    (packages / f"kernels-{version}.dist-info").mkdir()
    (packages / f"kernels-{version}.dist-info" / "METADATA").write_text(f"Name: kernels\nVersion: {version}\n")
    code = (
        "import sys\nfrom pathlib import Path\nfrom securecoderl_edge.models.loading import load_base\n"
        "load_base(Path(sys.argv[1]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
    )
    assert done.stdout == ""
    assert "GPT2LMHeadModel is not supported" in done.stderr


@pytest.mark.parametrize("model", ["BertForMaskedLM", "T5ForConditionalGeneration"])
def test_what_is_no_causal_language_model_is_refused(model: str, tiny_model: Path, tmp_path: Path) -> None:
    kind = model.partition("For")[0]
    config = getattr(transformers, f"{kind}Config")()
    (tmp_path / "config.json").write_text(json.dumps({**config.to_dict(), "architectures": [model]}))
    with pytest.raises(UsageError, match=f"{model} is not supported.*(not a causal|transformers cannot load it)"):
        find_architecture(tmp_path)
