"""One prompt from supervised training to the exported file, in every style; token budgets on the way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.evaluation.bench import BenchSettings
from securecoderl_edge.evaluation.evaluate import EvaluationPlan, evaluate
from securecoderl_edge.evaluation.measure import measure
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.prompts.extraction import PromptFacts
from securecoderl_edge.prompts.fitting import CUT
from securecoderl_edge.prompts.styles import choose_format
from securecoderl_edge.runs import Run
from securecoderl_edge.runtimes.opening import RuntimeSettings, open_reader, open_runtime
from securecoderl_edge.runtimes.protocol import Sampling
from securecoderl_edge.runtimes.spec import ModelSpec, resolve_model
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.training.recipe import resolve
from securecoderl_edge.training.settings import TrainSettings
from securecoderl_edge.training.train import train
from securecoderl_edge.training.update import rollout
from securecoderl_edge.training.update.learner import Learner

pytestmark = pytest.mark.usefixtures("known_references")

TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'user' %}def question():\n{{ message.content }}\n"
    "{% else %}{{ message.content }}<eos>{% endif %}{% endfor %}{% if add_generation_prompt %}print{% endif %}"
)


@pytest.fixture(scope="module")
def chatting(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tiny_model` with a chat template whose answers end with the end of sequence."""
    folder = tmp_path_factory.mktemp("chat") / "chatting"
    shutil.copytree(tiny_model, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return folder


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    path = tmp_path / "problems.jsonl"
    write_problems(
        path,
        [
            Problem(
                f"p{number}",
                f"Read n. Print n + 1. {'Mind the rest. ' * (40 if number == 3 else 0)}({number})",
                tests=(Test("1\n", "2\n"),),
                solutions=("print(int(input()) + 1)\n",),
            )
            for number in range(20)
        ],
    )
    return path


@pytest.fixture
def settings(chatting: Path, problems: Path) -> Callable[..., TrainSettings]:
    def make(*overrides: str, **flags: Any) -> TrainSettings:
        small = (
            "lora.rank=4", "sft.steps=1", "sft.batch_size=2", "binary.steps=1", "ppo.batch_size=4",
            "ppo.samples_per_prompt=2", "ppo.max_tokens=8", "selection.problems=0", "readiness_problems=0",
            "reward.cpu_seconds=1",
        )  # fmt: skip
        phases = ("sft", "binary")
        return resolve(
            "starter",
            (*small, *overrides),
            {"model": str(chatting), "problems": str(problems), "phases": phases, **flags},
        )

    return make


def spied(monkeypatch: pytest.MonkeyPatch) -> list[Learner]:
    """The learners of the phases that are made from now on."""
    learners: list[Learner] = []
    make = Learner.__post_init__

    def record(learner: Learner) -> None:
        make(learner)
        learners.append(learner)

    monkeypatch.setattr(Learner, "__post_init__", record)
    return learners


@pytest.mark.parametrize(
    "style",
    ["stdin", pytest.param("paper", marks=pytest.mark.slow), "chat", pytest.param("prefilled", marks=pytest.mark.slow)],
)
def test_training_bench_and_the_exported_file_see_the_same_tokens(
    settings: Callable[..., TrainSettings], tmp_path: Path, problems: Path, style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("llama_cpp", reason="needs the gguf extra")
    from securecoderl_edge.export.gguf import write_gguf
    from securecoderl_edge.export.merge import write_merged
    from securecoderl_edge.models.files import base_folder

    learners = spied(monkeypatch)
    run = train(settings(f"prompt.style={style}"), tmp_path / "run")
    supervised, reinforced = learners
    trained = {name: ids for name, ids in reinforced.prompts.items() if name in supervised.prompts}
    assert trained == {name: supervised.prompts[name] for name in trained} != {}

    policy = resolve_model(str(run.path))
    base = base_folder(policy.source)
    gguf = tmp_path / "policy.gguf"
    write_gguf(base, policy.adapter, "f32", gguf, "policy", policy.prompt_style)
    merged = tmp_path / "merged"
    merged.mkdir()
    write_merged(base, policy.adapter, merged, "float32", policy.prompt_style)
    by_id = {problem.id: problem for problem in load_problems(str(problems))}
    for spec in (policy, resolve_model(str(run.policy)), resolve_model(str(gguf)), resolve_model(str(merged))):
        runtime = open_runtime(spec, RuntimeSettings("cpu", threads=1))
        format = choose_format("auto", spec.prompt_style or runtime.prompt_style, runtime.chat_template)
        assert format.style == style
        (name, _), ids = next(iter(trained.items()))
        prompt = format.prompt(by_id[name])
        ((completion,),) = runtime.generate([prompt], 1, Sampling(0.0, 1))
        assert completion.prompt_tokens == len(ids) == runtime.count_tokens(prompt)
        runtime.close()


def test_chat_without_a_template_is_refused_before_anything_is_trained(
    settings: Callable[..., TrainSettings], tiny_model: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="has no chat template"):
        train(settings("prompt.style=chat", model=str(tiny_model)), tmp_path / "run")


def test_a_policy_is_taught_and_read_in_fences_when_it_chats(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learners = spied(monkeypatch)
    styles: set[str | None] = set()
    extract = rollout.extract_program

    def record(completion: str, facts: PromptFacts | None) -> str:
        styles.add(facts and facts.style)
        return extract(completion, facts)

    monkeypatch.setattr(rollout, "extract_program", record)
    train(settings("prompt.style=chat"), tmp_path / "run")
    taught = learners[0].tokenizer.backend.decode(learners[0].solution_tokens("print(1)\n"), skip_special_tokens=False)
    assert taught == "```python\nprint(1)\n```<eos>"
    assert styles == {"chat"}


def test_prompts_over_the_budget_are_left_out_or_cut_and_said_so(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for overlong, said in (
        ("drop", "1 of 20 problems dropped: their prompts have more than 120 tokens"),
        ("truncate", "1 of 20 statements truncated to fit into 120 tokens"),
    ):
        learners, lines = spied(monkeypatch), list[str]()
        chosen = settings("prompt.max_tokens=120", f"prompt.overlong={overlong}", "sft.steps=20", phases=("sft",))
        train(chosen, tmp_path / overlong, say=lines.append)
        assert said in lines
        (learner,) = learners
        assert (("p3", "") in learner.prompts) is (overlong == "truncate")
        assert max(map(len, learner.prompts.values())) <= 120
    assert CUT in learner.tokenizer.decode(learner.prompts["p3", ""])


def test_nothing_to_learn_from_is_an_error_that_names_the_way_out(
    settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    with pytest.raises(SceError, match=r"Set prompt\.overlong = truncate"):
        train(settings("prompt.max_tokens=5"), tmp_path / "run")


def test_solutions_over_the_budget_are_counted(
    settings: Callable[..., TrainSettings], tmp_path: Path, problems: Path
) -> None:
    long = Problem("long", "Say much.", tests=(Test("", "1"),), solutions=("print(1)\n" * 100,))
    write_problems(problems, [*load_problems(str(problems)), long])
    lines: list[str] = []
    train(settings("sft.max_tokens=50", phases=("sft",)), tmp_path / "run", say=lines.append)
    assert "sft: 20 of 21 problems have a solution of at most 50 tokens" in lines


def test_a_bench_cuts_what_does_not_fit_and_counts_it(chatting: Path, problems: Path) -> None:
    runtime = open_runtime(ModelSpec("chatting", "hf", str(chatting)), RuntimeSettings("cpu", threads=1))
    with Scorer(workers=1) as scorer:
        plan = EvaluationPlan(sampling=Sampling(0.7, 8), max_prompt_tokens=120)
        result = evaluate(runtime, load_problems(str(problems)), scorer, plan)
    cut = {row["id"]: row["prompt_tokens"] for row in result.rows if row["prompt_cut"]}
    assert cut.keys() == {"p3"}
    assert 100 < cut["p3"] <= 120
    assert result.summary().cut_prompts == 1


def test_a_bench_says_in_which_style_each_model_was_asked(chatting: Path, tiny_model: Path, problems: Path) -> None:
    asked = {}
    with Scorer(workers=1) as scorer:
        for folder in (chatting, tiny_model):
            for prompt in ("auto", "paper"):
                settings = BenchSettings(prompt_style=prompt, max_tokens=8, threads=1)
                done = measure(resolve_model(str(folder)), load_problems(str(problems))[:2], scorer, settings)
                asked[folder.name, prompt] = done.summary().prompt_style
    assert asked == {
        (chatting.name, "auto"): "chat", (chatting.name, "paper"): "paper",
        (tiny_model.name, "auto"): "code", (tiny_model.name, "paper"): "paper",
    }  # fmt: skip


def test_a_start_token_that_a_template_brings_is_not_added_twice(chatting: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, processors

    folder = tmp_path / "with-start"
    shutil.copytree(chatting, folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = processors.TemplateProcessing(single="<pad> $A", special_tokens=[("<pad>", 0)])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "bos_token": "<pad>", "pad_token": "<eos>"}))
    (folder / "chat_template.jinja").write_text("{{ bos_token }}{{ messages[0].content }}")
    runtime = open_runtime(resolve_model(str(folder)), RuntimeSettings("cpu", threads=1))
    chat = runtime.chat_template
    assert chat is not None
    assert chat.ask("Add.").startswith("<pad>")
    assert runtime.count_tokens(chat.ask("Add.")) == runtime.count_tokens("Add.")
    with open_reader(resolve_model(str(folder))) as reader:
        assert reader.count(chat.ask("Add.")) == reader.count("Add.") == runtime.count_tokens("Add.")


def test_a_run_without_word_of_a_style_was_trained_with_our_own(tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_text("{}")
    assert Run(tmp_path).prompt_style == "stdin"
    (tmp_path / "config.toml").write_text('[prompt]\nstyle = "paper"\n')
    assert Run(tmp_path).prompt_style == "paper"
