"""Every family computed natively, against Hugging Face's own forward pass: logits, gradients, greedy text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from once import Once
from quick import few
from tiny_families import FAMILIES, VARIED, WINDOW, build_family
from torch import Tensor
from transformers import AutoConfig

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.adapters import POLICY_ADAPTER, LoraSettings, adapter_parameters, add_adapters
from securecoderl_edge.models.architecture import Architecture, architecture_of, read_architecture
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.sampling import Sampler, sample
from securecoderl_edge.models.transformer import hidden_states, output_weight
from securecoderl_edge.training.update.sequences import completion_log_probs, make_batch

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


@pytest.fixture(params=FAMILIES)
def folder(request: pytest.FixtureRequest, once: Once) -> Path:
    return once(f"family-{request.param}", lambda folder: build_family(folder, request.param))


def adapted(folder: Path) -> Any:
    """The model with LoRA on all its linear layers."""
    linears = {name.split(".")[1] for name in read_architecture(folder).linears()}
    model = add_adapters(load_base(folder), LoraSettings(rank=4, targets=tuple(sorted(linears))), seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in adapter_parameters(model, POLICY_ADAPTER).values():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return model


def some_tokens(rows: int, length: int) -> Tensor:
    return torch.randint(2, 400, (rows, length), generator=torch.Generator().manual_seed(1))


def logits_of(model: Any, tokens: Tensor) -> Tensor:
    return model(input_ids=tokens).logits.float()  # type: ignore[no-any-return]


def test_an_architecture_names_every_weight_of_its_model(folder: Path) -> None:
    model = load_base(folder)
    expected = {name: tuple(tensor.shape) for name, tensor in model.named_parameters()}
    assert read_architecture(folder).tensors() == expected


def test_logits_and_hidden_states_are_those_of_hugging_face(folder: Path) -> None:
    model, shape, tokens = adapted(folder), read_architecture(folder), some_tokens(2, 4 * WINDOW)
    hidden, kept = hidden_states(model, tokens)
    expected = model.get_base_model().model(input_ids=tokens).last_hidden_state
    torch.testing.assert_close(hidden, expected.flatten(0, 1), atol=1e-4, rtol=1e-4)
    logits = hidden @ output_weight(model).T * shape.logit_scale
    torch.testing.assert_close(logits, logits_of(model, tokens).flatten(0, 1), atol=1e-4, rtol=1e-4)
    assert len(kept) == shape.layers
    wanted = torch.tensor([4 * WINDOW - 1, WINDOW + 3])
    last, _ = hidden_states(model, tokens, only=wanted)
    torch.testing.assert_close(last, hidden.view(2, 4 * WINDOW, -1)[[0, 1], wanted], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("folder", few(FAMILIES, *VARIED), indirect=True)
def test_log_probs_of_completions_and_their_gradients_are_those_of_hugging_face(folder: Path) -> None:
    """Prompts are shared by their completions, and longer than a window; some completions are, too."""
    model = adapted(folder)
    first, second = some_tokens(1, 2 * WINDOW)[0].tolist(), some_tokens(2, 7)[1].tolist()
    longer = some_tokens(3, 2 * WINDOW)[2].tolist()
    pairs = [(first, [5, 9, 1]), (second, longer), (first, longer[:WINDOW]), (first, [5, 9, 1])]
    temperature = 0.7
    batch = make_batch(pairs, padding=0, device="cpu")
    found, _ = completion_log_probs(model, batch, temperature)
    expected = torch.zeros_like(found)
    for row, (prompt, completion) in enumerate(pairs):
        logits = logits_of(model, torch.tensor([[*prompt, *completion]]))[0, len(prompt) - 1 : -1] / temperature
        chosen = logits.log_softmax(-1).gather(-1, torch.tensor(completion)[:, None])[:, 0]
        expected = expected.index_put((torch.tensor(row), torch.arange(len(completion))), chosen)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(3)) * batch.mask
    parameters = list(adapter_parameters(model, POLICY_ADAPTER).values())
    ours = torch.autograd.grad((found * weights).sum(), parameters)
    theirs = torch.autograd.grad((expected * weights).sum(), parameters)
    for own, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, their, atol=1e-4 * max(1.0, float(their.abs().max())), rtol=1e-4)


@pytest.mark.parametrize("folder", few(FAMILIES, *VARIED), indirect=True)
@torch.no_grad()
def test_greedy_sampling_of_ragged_prompts_equals_generate(folder: Path) -> None:
    model = adapted(folder)
    prompts = [some_tokens(1, 2 * WINDOW)[0].tolist(), [7, 8, 9], some_tokens(2, WINDOW - 1)[1].tolist()]
    sampler = Sampler(0.0, 40, frozenset({1}), torch.zeros(3, 40))
    drawn = sample(Decoder(model, torch.float32), prompts, 1, sampler)
    for prompt, done in zip(prompts, drawn, strict=True):
        tokens = torch.tensor([prompt])
        expected = model.generate(
            input_ids=tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=40, do_sample=False,
            pad_token_id=0, eos_token_id=1,
        )  # fmt: skip
        assert list(done.token_ids) == expected[0, len(prompt) :].tolist()


WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "the window": ("mistral", {"windows": (None,) * 5}),
    "layers without rotary embedding": ("smollm3", {"rotated": (True,) * 5}),
    "the factor of the scores": ("gemma3", {"attention_scale": 32**-0.5}),
    "the factor of the embedding": ("granite", {"embedding_scale": 1.0}),
    "the factor of the residual stream": ("granite4", {"residual_scale": 1.0}),
}


@pytest.mark.parametrize("fact", WRONG)
def test_a_fact_that_is_left_out_shows_in_the_hidden_states(
    fact: str, once: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, wrong = WRONG[fact]
    folder = once(f"family-{name}", lambda made: build_family(made, name))
    model, tokens = load_base(folder), some_tokens(1, 4 * WINDOW)
    expected = model.model(input_ids=tokens).last_hidden_state
    facts = {**vars(read_architecture(folder)), **wrong}
    monkeypatch.setitem(model.__dict__, "_sce_architecture", Architecture(**facts))
    hidden, _ = hidden_states(model, tokens)
    assert float((hidden - expected.flatten(0, 1)).abs().max()) > 1e-2


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("smollm3", {"no_rope_layers": [1, 0]}),
        ("smollm3", {"no_rope_layers": None, "no_rope_layer_interval": 0}),
        ("granite", {"logits_scaling": 0}),
        ("gemma3", {"layer_types": ["full_attention"]}),
        ("mistral", {"sliding_window": -1}),
    ],
)
def test_a_damaged_configuration_is_an_error_of_the_user(family: str, change: dict[str, Any], once: Once) -> None:
    folder = once(f"family-{family}", lambda made: build_family(made, family))
    config = json.loads((folder / "config.json").read_text())
    with pytest.raises(UsageError, match="missing or invalid value"):
        architecture_of(config | change, "config.json")


@pytest.mark.parametrize("change", [{"head_dim": True}, {"pad_token_id": 10**6}])
def test_what_transformers_cannot_use_is_a_sentence(change: dict[str, Any], once: Once, tmp_path: Path) -> None:
    shutil.copytree(once("family-mistral", lambda made: build_family(made, "mistral")), tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(SceError, match=r"config\.json"):
        load_base(tmp_path / "model")


def test_an_architecture_that_is_no_text_is_refused() -> None:
    with pytest.raises(UsageError, match="is not supported"):
        architecture_of({"model_type": ["llama"]}, "config.json")


# The first row of each class, but for that which has to name the type of each layer.
OF_EACH_CLASS = {kind: name for name, (kind, _) in reversed(FAMILIES.items()) if kind != "GraniteMoeHybrid"}


@pytest.mark.parametrize("name", OF_EACH_CLASS.values())
def test_keys_that_are_left_out_have_the_defaults_of_transformers(name: str, once: Once) -> None:
    folder = once(f"family-{name}", lambda made: build_family(made, name))
    config = json.loads((folder / "config.json").read_text())
    sizes = {"hidden_size": 4096, "num_attention_heads": 32, "architectures": config["architectures"]}
    for key in ("num_hidden_layers", "intermediate_size", "vocab_size"):
        sizes[key] = config[key]
    full = type(AutoConfig.from_pretrained(folder))(**{k: v for k, v in sizes.items() if k != "architectures"})
    expected = architecture_of(full.to_dict() | {"architectures": config["architectures"]}, "full")
    assert architecture_of(sizes, "short") == expected
