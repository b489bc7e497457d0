"""Which recipe a model gets, and what of it depends on the model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from securecoderl_edge.config import to_table
from securecoderl_edge.errors import UsageError
from securecoderl_edge.training.base import describe_base, known_shapes, learning_rate
from securecoderl_edge.training.recipe import choose_recipe, load_recipe, resolve
from securecoderl_edge.training.settings import TrainSettings

QWEN = "Qwen/Qwen2.5-Coder-0.5B-Instruct"
CHATML = (
    "{% for each in messages %}<|im_start|>{{ each.role }}\n{{ each.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
EVERY_LAYER = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    """A folder without weights, whose chat template a test may change."""
    folder = tmp_path / "models" / "mine"
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tiny_model / name, folder / name)
    return folder


def give_template(folder: Path, end: str) -> None:
    """A chat template whose answers end with ``<|im_end|>``, and ``end`` as the end-of-sequence token."""
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"chat_template": CHATML, "eos_token": end}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def settings_for(model: object, *overrides: str) -> tuple[str, TrainSettings]:
    flags = {"model": str(model)}
    choice = choose_recipe(None, overrides, flags)
    return choice.name, resolve(choice.name, overrides, flags)


def test_no_model_but_the_built_in_ones_gets_the_settings_that_are_tuned_for_these(model: Path) -> None:
    starter = resolve("starter", (), {})
    for end in ("", "<|im_end|>", "<|endoftext|>"):
        if end:
            give_template(model, end)
        name, settings = settings_for(model)
        assert name != "starter"
        assert settings.sft.learning_rate != starter.sft.learning_rate
        assert settings.problems != starter.problems
    assert [choose_recipe(None, (), flags).name for flags in ({}, {"model": "nano"})] == ["starter", "starter"]
    assert choose_recipe(None, (), {"model": "nano-c"}).name == "starter-c"
    assert choose_recipe("starter", (), {"model": str(model)}).name == "starter"


def test_a_model_that_was_trained_to_chat_gets_rl_alone_with_a_prefilled_answer(model: Path) -> None:
    give_template(model, "<|im_end|>")
    name, settings = settings_for(model)
    assert name == "instruct"
    assert settings.phases == ("binary",)
    assert settings.prompt.style == "prefilled"
    assert settings.lora.targets == EVERY_LAYER
    ppo, reward = settings.ppo, settings.reward
    assert (ppo.advantage, ppo.kl_coefficient, ppo.epochs, ppo.minibatches) == ("rloo", 0, 1, 1)
    assert (reward.security_weight, reward.visible_tests, reward.unparsable) == (0, "drop", "zero")
    assert settings.selection.problems == 0


def test_a_base_model_gets_sft_first_even_if_it_has_the_template_of_its_chat_model(model: Path) -> None:
    """Qwen2.5-Coder-0.5B has ChatML, but ends texts with another token: nothing taught it to end an answer."""
    for end in ("", "<|endoftext|>"):
        if end:
            give_template(model, end)
        name, settings = settings_for(model)
        assert name == "base"
        assert settings.phases == ("sft", "binary")
        assert settings.prompt.style == "stdin"  # needs no template
        assert settings.sft.learning_rate == 2 * settings.ppo.learning_rate


def test_the_model_of_an_override_counts_and_a_typed_setting_wins(model: Path) -> None:
    overrides = (f"model={model}", "ppo.learning_rate=3e-6", "lora.targets=['q_proj']")
    assert choose_recipe(None, overrides, {}).name == "base"
    settings = resolve("base", overrides, {})
    assert (settings.ppo.learning_rate, settings.lora.targets) == (3e-6, ("q_proj",))
    assert settings.sft.learning_rate == 2 * learning_rate(describe_base(str(model)).size)
    by_flag = resolve("base", (), {"model": str(model), "learning_rate": 5e-6})
    assert by_flag.ppo.learning_rate == 5e-6


def test_a_reason_and_a_name_of_its_own_belong_to_a_choice(model: Path) -> None:
    give_template(model, "<|im_end|>")
    choice = choose_recipe(None, (), {"model": str(model)})
    assert "chat template" in choice.why
    assert choice.run_name == "mine"  # the runs of two models must not meet in runs/instruct
    assert choose_recipe("instruct", (), {"model": str(model)}).run_name == "instruct"


def test_a_recipe_for_other_models_is_refused_for_the_built_in_one() -> None:
    for recipe in ("instruct", "base"):
        with pytest.raises(UsageError, match="Give one with --model"):
            resolve(recipe, (), {})


def test_sizes_alone_are_no_reason_for_a_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UsageError, match="no recipe can be chosen: name one with --recipe"):
        choose_recipe(None, (), {"model": QWEN})
    assert resolve("instruct", (), {"model": QWEN}).ppo.learning_rate == 1e-4


def test_the_learning_rate_falls_with_the_size_and_never_above_that_of_the_smallest() -> None:
    sizes = [100_000, 4.8e6, 135e6, 494e6, 1.5e9, 4e9, 7e9]
    rates = [learning_rate(int(size)) for size in sizes]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == rates[1] == 1e-3
    assert rates[3] == 1e-4
    assert 3e-5 <= rates[5] <= 5e-5


def test_two_files_of_one_model_get_one_rate_whether_they_repeat_the_embedding_or_not(tmp_path: Path) -> None:
    rates = []
    for tied in (True, False):
        folder = tmp_path / str(tied)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({**known_shapes()[QWEN], "tie_word_embeddings": tied}))
        rates.append(resolve("instruct", (), {"model": str(folder)}).ppo.learning_rate)
    assert rates == [1e-4, 1e-4]


def test_qwen_is_two_lines_on_the_recipe_for_its_kind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # not pulled: the sizes are known all the same
    mine, general = resolve("qwen-0.5b", (), {}), resolve("instruct", (), {"model": QWEN})
    assert to_table(mine) == to_table(general) | {"model": "qwen-0.5b"}
    assert choose_recipe(None, (), {"model": "qwen-0.5b"}).name == "qwen-0.5b"


def test_a_recipe_takes_from_another_what_it_does_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("below.toml").write_text('recipe = "starter"\nsft.steps = 3\n')
    Path("mine.toml").write_text('recipe = "below.toml"\n[sft]\nbatch_size = 5\n')
    found, starter = load_recipe("mine.toml"), load_recipe("starter")
    assert found["sft"] == {**starter["sft"], "steps": 3, "batch_size": 5}
    assert found["ppo"] == starter["ppo"]
    assert "recipe" not in found


@pytest.mark.parametrize("text", ['recipe = "mine.toml"', "recipe = 3"])
def test_a_recipe_on_top_of_itself_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(text)
    with pytest.raises(UsageError, match="recipe must be the name of another recipe"):
        load_recipe("mine.toml")
