"""Completions that end with their program: where, and what is trained on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from quick import few
from small_runs import an_update, sgd_learner, varied_reward

from securecoderl_edge.models import sampling
from securecoderl_edge.models.tokenizer import Tokenizer, read_tokenizer
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.prompts.chat import Untemplated
from securecoderl_edge.prompts.extraction import PromptFacts, extract_program, is_over
from securecoderl_edge.prompts.styles import PromptFormat
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.training import reuse
from securecoderl_edge.training.phase_settings import PpoSettings
from securecoderl_edge.training.recipe import load_recipe, resolve
from securecoderl_edge.training.settings import TrainSettings
from securecoderl_edge.training.update import rollout
from securecoderl_edge.training.update.learner import Learner
from securecoderl_edge.training.update.ppo_update import ppo_update
from securecoderl_edge.training.update.program_end import ProgramEnd
from securecoderl_edge.training.update.rollout import collect

PROBLEM = Problem("p", "Print the number.", tests=(Test("1\n", "1\n"),), solutions=("print(1)",))
PREFILLED, CHAT = (PromptFormat(style, Untemplated("")) for style in ("prefilled", "chat"))
FORMATS = {"prefilled": PREFILLED, "chat": CHAT, "stdin": PromptFormat("stdin"), "paper": PromptFormat("paper")}
PROGRAM = "n = int(input())\nprint(n)\n"
ANSWER = f"{PROGRAM}```\nIt reads a number and prints it again.\n"
TEXTS = {
    "a block, then words": ANSWER,
    "two blocks": f"```python\n{PROGRAM}```\nOr:\n```python\nprint(input())\n```\n",
    "a fence in a string": f'text = """\n```\n"""\n{PROGRAM}```\nDone.\n',
    "another section": f"{PROGRAM}\n### Problem\nRead two numbers.\n",
    "a comment that looks like one": f"### Read\n{PROGRAM}\n",
    "longer fences": f"````\n{PROGRAM}```\n````\nDone.\n",
    "no code": "I cannot.\n\n",
}


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> Tokenizer:
    return read_tokenizer(tiny_model)


def stop_of(tokenizer: Tokenizer, text: str, facts: PromptFacts | None) -> str:
    """The text up to where `ProgramEnd` ends it."""
    ids, end = tokenizer.encode(text), ProgramEnd(tokenizer, [None, facts])
    for count, token in enumerate(ids, 1):
        if end.is_over(1, 3, token):
            return tokenizer.decode(ids[:count])
    return text


@pytest.mark.parametrize("text", few(TEXTS, *TEXTS))
@pytest.mark.parametrize("style", FORMATS)
def test_a_completion_ends_at_the_first_line_at_which_its_program_is_over(
    tokenizer: Tokenizer, style: str, text: str
) -> None:
    whole = TEXTS[text]
    facts = PromptFacts.of(PROBLEM, FORMATS[style])
    ends = [end for end in range(1, len(whole) + 1) if whole[end - 1] == "\n" and is_over(whole[:end], facts)]
    stopped = stop_of(tokenizer, whole, facts)
    # A token may have more than one line, and something behind the last.
    assert stopped == (stopped if ends else whole)
    assert not ends or whole[: ends[0]] in stopped
    assert not [end for end in ends if end <= stopped.rstrip("\n").rfind("\n") + 1], "it went on behind the end"
    assert extract_program(stopped, facts) == extract_program(whole, facts)


def test_only_some_styles_end_and_raw_text_never_does(tokenizer: Tokenizer) -> None:
    stops = {style: stop_of(tokenizer, ANSWER, PromptFacts.of(PROBLEM, each)) for style, each in FORMATS.items()}
    assert stops["prefilled"].rstrip("\n") == f"{PROGRAM}```"
    assert stops["chat"] == ANSWER
    assert stop_of(tokenizer, ANSWER, None) == ANSWER


def test_completions_of_a_batch_end_each_for_itself(tokenizer: Tokenizer) -> None:
    facts = PromptFacts.of(PROBLEM, PREFILLED)
    end, ids = ProgramEnd(tokenizer, [facts, facts]), tokenizer.encode(ANSWER)
    keys = [(0, 0), (0, 1), (1, 0)]
    over = {key: [end.is_over(*key, token) for token in ids[: 5 + 9 * number]] for number, key in enumerate(keys)}
    alone = ProgramEnd(tokenizer, [facts, facts])
    assert over[keys[2]] == [alone.is_over(1, 0, token) for token in ids[:23]]


@pytest.fixture
def learner(tiny_model: Path) -> Learner:
    made = sgd_learner(tiny_model, 0.1, moved=0.05)
    return replace(made, format=PREFILLED)


PPO = PpoSettings(
    batch_size=4, samples_per_prompt=4, max_tokens=60, epochs=1, temperature=1.0, mask_truncated=True,
    end_with_program=True,
)  # fmt: skip


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer) -> Callable[[str], None]:
    """Lets the policy sample a text, over and over, in all rows; with its own probabilities."""

    def say(text: str) -> None:
        ids, steps = tokenizer.encode(text), iter(range(10**6))

        def draw(logits: torch.Tensor, temperature: float, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
            token = ids[next(steps) % len(ids)]
            log_probs = (logits.float() / temperature).log_softmax(-1)[:, token]
            return torch.full((len(logits),), token), log_probs

        monkeypatch.setattr(sampling, "draw_tokens", draw)

    return say


@pytest.mark.parametrize("is_ours", [True, False])
def test_sampling_ends_behind_the_block_and_the_reward_is_that_of_the_whole_text(
    learner: Learner, scorer: Scorer, says: Callable[[str], None], is_ours: bool
) -> None:
    learner = learner if is_ours else replace(learner, decoder=None)
    found = {}
    for ends in (True, False):
        says(ANSWER)
        made = collect(learner, scorer, [PROBLEM], 4, replace(PPO, end_with_program=ends), 1)
        found[ends] = made
        assert {score.program for score in made.scores} == {PROGRAM}
        assert [score.passes_all_tests for score in made.scores] == [True] * 4
        assert {done.finished for done in made.completions} == {ends}
    texts = {learner.tokenizer.decode(done.token_ids) for done in found[True].completions}
    assert {text.rstrip("\n") for text in texts} == {f"{PROGRAM}```"}
    assert {len(done.token_ids) for done in found[False].completions} == {PPO.max_tokens}


def test_a_completion_that_ended_with_its_program_trains_on_its_own_tokens_alone(
    learner: Learner, scorer: Scorer, says: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout, "training_reward", varied_reward)
    says(ANSWER)
    row, made = ppo_update(learner, an_update([PROBLEM], scorer, ppo=PPO))
    assert row["truncated_rate"] == 0, "it is complete"
    assert row["val/num_eos_tokens"] == 0
    assert "grad_norm" in row, (
        "it is not masked"
    )  # 0 up to rounding: four equal completions, whose advantages add up to 0
    assert row["val/first_ratio_error"] == 0
    assert row["sampling/sampling_logp_difference/max"] < 1e-4
    assert row["tokens"] == sum(len(done.token_ids) for done in made.completions)
    says(ANSWER)
    cut, _ = ppo_update(learner, an_update([PROBLEM], scorer, ppo=replace(PPO, end_with_program=False)))
    assert cut["truncated_rate"] == 1
    assert "grad_norm" not in cut


def test_a_program_that_the_limit_cuts_before_its_end_is_truncated(
    learner: Learner, scorer: Scorer, says: Callable[[str], None]
) -> None:
    says(ANSWER)
    made = collect(learner, scorer, [PROBLEM], 2, replace(PPO, max_tokens=5), 1)
    assert not any(done.finished for done in made.completions)


def test_an_end_token_still_ends_a_completion_and_is_no_part_of_its_program(
    learner: Learner, scorer: Scorer, says: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    says(PROGRAM)
    ids = learner.tokenizer.encode(PROGRAM)
    learner.end_tokens |= {ids[-1]}
    made = collect(learner, scorer, [PROBLEM], 2, PPO, 1)
    assert all(done.finished and done.token_ids[-1] in learner.end_tokens for done in made.completions)
    first = ids.index(ids[-1])
    assert {score.program for score in made.scores} == {learner.tokenizer.decode(ids[:first])}


def test_the_setting_changes_the_key_of_every_phase() -> None:
    """Without it the keys are as before it was there, see `test_reuse`."""
    plain, inputs = resolve("starter", (), {}), {"base_sha256": "a"}
    ended = replace(plain, ppo=replace(plain.ppo, end_with_program=True))
    now, changed = (reuse.phase_keys(settings, inputs) for settings in (plain, ended))
    assert not set(now.values()) & set(changed.values()), "sft is evaluated with it, too"


def test_the_recipe_for_chat_models_ends_completions_with_their_program() -> None:
    assert not TrainSettings().ppo.end_with_program
    assert load_recipe("instruct")["ppo"]["end_with_program"]
