"""Real trainers with the reward: a step of TRL; verl and verifiers, where they are installed.

Their dependencies clash with ours: these tests were run in environments of their own, with verl 0.9.1 and verifiers
0.4.0.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from quick import few

from securecoderl_edge.integrations.trl import Reward
from securecoderl_edge.models.files import NANO, base_folder
from securecoderl_edge.problems.sources import load_problems

PROBLEMS = "starter:eval"


@pytest.mark.filterwarnings("default")  # those of trl and transformers
@pytest.mark.parametrize("style", few(["stdin", "chat", "prefilled"], "chat"))
def test_a_step_of_trl_is_rewarded_by_the_sandbox(style: str, tmp_path: Path) -> None:
    trl = pytest.importorskip("trl", reason="needs trl")
    datasets = pytest.importorskip("datasets", reason="comes with trl")
    from transformers import AutoTokenizer

    model = str(base_folder(NANO))
    tokenizer = AutoTokenizer.from_pretrained(model)
    # What nano was trained with, as a template.
    tokenizer.chat_template = "{% for m in messages %}### Problem\n{{ m.content }}\n\n### Solution\n{% endfor %}"
    reward, seen = Reward(PROBLEMS, style=style, workers=2), []

    def watched(completions: list[Any], **columns: Any) -> list[float]:
        seen.extend(zip(completions, reward(completions=completions, **columns), strict=True))
        return [0.0] * len(completions)

    settings = trl.GRPOConfig(
        output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=8, num_generations=8, use_cpu=True,
        max_completion_length=96, report_to=[], logging_steps=1, save_strategy="no", seed=1, learning_rate=1e-3,
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=model,
        reward_funcs=[reward, watched],
        args=settings,
        train_dataset=datasets.Dataset.from_list(reward.rows()[:8]),
        processing_class=tokenizer,
    )
    trainer.train()
    rewards = [value for _, value in seen]
    logged = next(row for row in trainer.state.log_history if "rewards/sce_reward/mean" in row)
    assert logged["rewards/sce_reward/mean"] == pytest.approx(sum(rewards) / 8)
    assert {type(completion) for completion, _ in seen} == {str if style == "stdin" else list}
    assert max(rewards) > 0.4  # nano writes programs
    assert logged["grad_norm"] > 0


def test_verl_finds_and_calls_the_function() -> None:
    loaders = pytest.importorskip("verl.trainer.ppo.reward", reason="needs verl")
    from omegaconf import OmegaConf

    function = {"path": "pkg://securecoderl_edge.integrations.verl", "name": "compute_score"}
    config = OmegaConf.create({"reward": {"custom_reward_function": {**function, "reward_kwargs": {"workers": 2}}}})
    score = loaders.get_custom_reward_fn(config)
    problem = load_problems(PROBLEMS)[0]
    given = {"data_source": PROBLEMS, "ground_truth": problem.id, "extra_info": {}}
    assert score(solution_str=problem.solutions[0], **given) == 1.0
    assert score(solution_str="no program", **given) == 0.0


def test_verifiers_loads_the_problems_and_scores_an_answer() -> None:
    vf = pytest.importorskip("verifiers.v1", reason="needs verifiers")
    from securecoderl_edge.integrations.verifiers import ProblemConfig, ProblemTaskset

    tasks = list(ProblemTaskset(ProblemConfig(problems=PROBLEMS)))
    problems = load_problems(PROBLEMS)
    assert [task.data.id for task in tasks] == [problem.id for problem in problems]
    trace = SimpleNamespace(last_reply=f"```python\n{problems[0].solutions[0]}\n```")
    assert asyncio.run(tasks[0].reward(trace)) == 1.0
    assert [hook.__name__ for hook in tasks[0].hooks("reward")] == ["reward"]
    assert issubclass(ProblemTaskset, vf.Taskset)
