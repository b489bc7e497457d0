"""Studies: what they consist of, that nothing is done twice or lost, and the figures that they end in."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import pytest
import qwen_studies
from study_engine import steps
from study_engine.arms import Measured, Split, Study
from study_engine.figures import STUDY_METRICS, Figures
from study_engine.run_log import STEPS, RunLog, Step, changed_values
from study_engine.steps import Chain, all_steps, chains, preparations, run_study
from study_engine.table3 import PRESETS, Table3Settings, table3

from securecoderl_edge.config import setting
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.system.files import locked
from securecoderl_edge.system.processes import module_command, on_ending_signals
from securecoderl_edge.training.recipe import phase_steps

# A module that writes down that it ran, and does what its arguments say.
WORKER = """
import os, signal, sys, time
from pathlib import Path
name, *acts = sys.argv[1:]
with open("ran", "a") as out:
    out.write(f"{name} {os.environ['OMP_NUM_THREADS']}\\n")
for act in acts:
    kind, _, value = act.partition(":")
    if kind == "wait-for":
        deadline = time.monotonic() + 60
        while not Path(value).exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    elif kind == "make":
        Path(value).write_text("")
    elif kind == "fail" and not Path("mended").exists():
        sys.exit("sce: it went wrong")
    elif kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "sleep":
        interrupts = []
        signal.signal(signal.SIGINT, lambda *_: interrupts.append(1))
        Path("asleep").write_text("")
        while not interrupts:
            time.sleep(0.01)
        time.sleep(0.3)
        Path("interrupts").write_text(str(len(interrupts)))
        sys.exit(130)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "worker.py").write_text(WORKER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def script(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Study]:
    """A study whose chains are the given lists of worker commands."""

    def make(*plan: list[str]) -> Study:
        def step(text: str) -> Step:
            return Step(f"step {text}", ("worker", *text.split()), folder / "study" / "log" / f"{text[:1]}.log", ())

        def chain(texts: list[str]) -> Chain:
            file = folder / "study" / f"{texts[0][:1]}.json.gz"
            return Chain(lambda: [step(text) for text in texts], file, lambda keys: Figures(list(keys), [], {}, []))

        monkeypatch.setattr(steps, "preparations", lambda missing: [])
        monkeypatch.setattr(steps, "chains", lambda study, jobs: map(chain, plan))
        return Study("test", "starter", folder / "study", (), (42,), 1)

    return make


def ran(folder: Path) -> list[str]:
    return [line.split()[0] for line in (folder / "ran").read_text().splitlines()]


def attempts(study: Study) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (study.folder / STEPS).read_text().splitlines()]


def planned(recipe: str, folder: Path, *overrides: str, **settings: Any) -> Study:
    """A study of `table3` in a folder."""
    return table3(Table3Settings(recipe, out=str(folder), **settings), overrides)


def quietly(step: Step, seconds: float, done: int, total: int) -> None:
    pass


def test_every_step_runs_once_and_chains_in_order(folder: Path, script: Callable[..., Study]) -> None:
    study = script(["a", "b", "c"], ["d"])
    seen: list[tuple[str, int, int]] = []
    run_study(study, 1, lambda step, seconds, done, total: seen.append((step.command, done, total)))
    run_study(study, 1, lambda *_: pytest.fail("a step was run again"))
    assert ran(folder) == ["a", "b", "c", "d"]
    assert seen == [(f"python -m worker {name}", number, 4) for number, name in enumerate("abcd", 1)]


def test_chains_run_side_by_side_and_share_the_cores(folder: Path, script: Callable[..., Study]) -> None:
    # Each can end only if the other runs at the same time.
    study = script(["a make:a-ran wait-for:b-ran"], ["b make:b-ran wait-for:a-ran"])
    run_study(study, 2, quietly)
    threads = {line.split()[1] for line in (folder / "ran").read_text().splitlines()}
    assert threads == {str(max(1, steps.cpu_count() // 2))}


def test_a_failed_step_is_named_and_its_chain_resumes_there(folder: Path, script: Callable[..., Study]) -> None:
    study = script(["a", "b fail", "c"])
    with pytest.raises(SceError, match=r"step b fail failed: it went wrong(.|\n)*b fail(.|\n)*b\.log"):
        run_study(study, 1, quietly)
    assert ran(folder) == ["a", "b"]
    (folder / "mended").write_text("")
    run_study(study, 1, quietly)
    assert ran(folder) == ["a", "b", "b", "c"]


def test_an_interrupt_reaches_a_running_step_once_and_starts_no_other(
    folder: Path, script: Callable[..., Study]
) -> None:
    study = script(["a sleep", "b"], ["c"])

    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while not (folder / "asleep").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run_study(study, 1, quietly)
    assert (folder / "interrupts").read_text() == "1"
    assert ran(folder) == ["a"]
    assert not any(row["succeeded"] for row in attempts(study))


def test_a_line_that_a_crash_cut_short_is_a_step_to_make_again(folder: Path, script: Callable[..., Study]) -> None:
    study = script(["a", "b"])
    run_study(study, 1, quietly)
    file = study.folder / STEPS
    content = file.read_text()
    file.write_text(content[: content.rindex('"succeeded"')])
    (study.folder / "a.json.gz").unlink()
    run_study(study, 1, quietly)
    run_study(study, 1, quietly)
    assert ran(folder) == ["a", "b", "b"]


def test_a_step_whose_output_is_gone_is_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step("a", ("worker", "a", "make:made"), folder / "a.log", (folder / "made",))
    monkeypatch.setattr(steps, "preparations", lambda missing: [step])
    monkeypatch.setattr(steps, "chains", lambda study, jobs: iter(()))
    study = Study("test", "starter", folder / "study", (), (42,), 1)
    run_study(study, 1, quietly)
    run_study(study, 1, quietly)
    assert ran(folder) == ["a"]
    (folder / "made").unlink()
    run_study(study, 1, quietly)
    assert ran(folder) == ["a", "a"]


def test_figures_are_enough_to_go_on_with(folder: Path, script: Callable[..., Study]) -> None:
    study = script(["a make:made", "b"], ["c"])
    run_study(study, 1, quietly)
    (folder / "made").unlink()
    (study.folder / STEPS).unlink()
    (study.folder / "c.json.gz").unlink()
    run_study(study, 1, quietly)
    assert ran(folder) == ["a", "b", "c", "c"]


def test_figures_of_other_steps_are_made_again(folder: Path, script: Callable[..., Study]) -> None:
    run_study(script(["a", "b"]), 1, quietly)
    run_study(script(["a", "changed"]), 1, quietly)
    assert ran(folder) == ["a", "b", "changed"]


def test_an_interrupted_arm_has_no_figures(folder: Path, script: Callable[..., Study]) -> None:
    study = script(["a", "b fail"])
    with pytest.raises(SceError):
        run_study(study, 1, quietly)
    assert not (study.folder / "a.json.gz").exists()


def test_damaged_figures_are_reported_with_what_to_do(folder: Path, script: Callable[..., Study]) -> None:
    study = script(["a"])
    run_study(study, 1, quietly)
    (study.folder / "a.json.gz").write_bytes(b"{}")
    with pytest.raises(SceError, match=r"a\.json\.gz is damaged .*delete it"):
        run_study(study, 1, quietly)


def test_a_closed_terminal_ends_the_steps_that_run(folder: Path, script: Callable[..., Study]) -> None:
    study = script(["a sleep"])

    def hang_up() -> None:
        deadline = time.monotonic() + 60
        while not (folder / "asleep").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGHUP)

    threading.Thread(target=hang_up).start()
    before = signal.getsignal(signal.SIGHUP)
    with pytest.raises(KeyboardInterrupt):
        run_study(study, 1, quietly)
    assert (folder / "interrupts").read_text() == "1"
    assert signal.getsignal(signal.SIGHUP) is before


def test_a_step_that_was_killed_is_reported_with_its_signal(folder: Path, script: Callable[..., Study]) -> None:
    with pytest.raises(SceError, match=r"killed by signal SIGKILL \(out of memory\?\)"):
        run_study(script(["a kill"]), 1, quietly)


def test_the_key_of_a_step_is_that_of_what_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text("[sft]\nsteps = 3\n")
    problems = [Problem(f"p{n}", f"Add {n}.", tests=(Test("1\n", "2\n"),)) for n in range(4)]
    write_problems(tmp_path / "train.jsonl", problems[:2])
    write_problems(tmp_path / "eval.jsonl", problems[2:])
    monkeypatch.chdir(tmp_path)

    def study_of(folder: str, variant: str) -> Study:
        own = Table3Settings("mine.toml", "train.jsonl", "eval.jsonl", seeds=1, quant=())
        return table3(replace(own, out=folder, variants=(variant,)))

    def keys(folder: str, variant: str = "sft") -> list[str]:
        study = study_of(folder, variant)
        return [RunLog(study.folder).key(step) for step in steps.all_steps(study, 1)]

    first = keys("runs/x")
    assert len(set(first)) == 3
    # Written in another way it is the same study.
    assert keys(str(tmp_path / "runs/x")) == first
    # Other settings: another training, and so another measurement of it; the base model is as it was.
    (tmp_path / "mine.toml").write_text("[sft]\nsteps = 4\n")
    other = keys("runs/x")
    assert [a == b for a, b in zip(first, other, strict=True)] == [True, False, False]
    # Settings that this version has and the first studies had not, such as the rounds of rft, leave no trace.
    (rft,) = [step for step in steps.all_steps(study_of("runs/x", "rft"), 1) if step.facts]
    assert json.loads(rft.facts) == {
        "phases": ["sft", "rft"],
        "problems": "train.jsonl",
        "reward": {"ignored_input": "zero"},
        "selection": {"hold_out": "groups", "metric": "all_tests", "standard_errors": 2.0},
        "sft": {"steps": 4},
    }
    # The reward for RL: the same training, unless a phase has that reward.
    (tmp_path / "mine.toml").write_text("[sft]\nsteps = 3\n")
    rewarded = keys("runs/x", "simple")
    (tmp_path / "mine.toml").write_text("[sft]\nsteps = 3\n[reward]\nsubtract_constant_baseline = true\n")
    assert keys("runs/x") == first
    assert [a == b for a, b in zip(rewarded, keys("runs/x", "simple"), strict=True)] == [True, False, False]
    # Other problems to measure on: both measurements, not the training.
    (tmp_path / "mine.toml").write_text("[sft]\nsteps = 3\n")
    write_problems(tmp_path / "eval.jsonl", problems[3:])
    assert [a == b for a, b in zip(first, keys("runs/x"), strict=True)] == [False, True, False]


def test_problems_for_training_are_not_evaluated_on(tmp_path: Path) -> None:
    problems = [Problem(f"p{n}", f"Add {n}.", tests=(Test("1\n", "2\n"),)) for n in range(4)]
    write_problems(tmp_path / "train.jsonl", problems)
    write_problems(tmp_path / "eval.jsonl", [replace(problems[2], id="other")])
    train, evaluation = str(tmp_path / "train.jsonl"), str(tmp_path / "eval.jsonl")
    study = planned("starter", tmp_path / "runs", train=train, eval=evaluation, seeds=1)
    with pytest.raises(SceError, match=r"1 problems of .*eval.jsonl are in .*train.jsonl too \(first: other\)"):
        run_study(study, 1, quietly)
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_another_process_works_in_is_refused(folder: Path, script: Callable[..., Study]) -> None:
    study = script(["a"])
    study.folder.mkdir()
    with locked(study.folder), pytest.raises(SceError, match="another process"):
        run_study(study, 1, quietly)


def test_the_wall_time_counts_what_overlaps_once(tmp_path: Path) -> None:
    made = {name: Step(name, ("worker", name), tmp_path / "log", ()) for name in ("a", "b", "c", "other")}
    run_log = RunLog(tmp_path)
    for name, (began, seconds) in {"a": (0, 10), "b": (5, 10), "c": (100, 5), "other": (50, 40)}.items():
        run_log.add(made[name], began, seconds, name != "c")
    again = RunLog(tmp_path)
    assert again.wall_seconds([made["a"], made["b"], made["c"]]) == 20
    assert [again.is_done(made[name]) for name in ("a", "b", "c", "other")] == [True, True, False, True]
    assert again.seconds(made["b"]) == 10


@pytest.mark.parametrize("recipe", PRESETS)
def test_all_commands_of_a_table_are_ones_that_sce_takes(recipe: str, tmp_path: Path) -> None:
    from securecoderl_edge.cli import sce

    study, context = planned(recipe, tmp_path), click.Context(sce, **sce.context_settings)
    for step in steps.all_steps(study, 2):
        program, name, *arguments = shlex.split(step.command)
        if program == "sce":
            command = sce.get_command(context, name)
            assert command is not None
            command.make_context(name, arguments, parent=context)  # parses them
    for arm in study.arms:
        assert study.settings(arm, 43).seed == 43


@pytest.mark.parametrize("name", ["reliable", "secure"])
def test_a_variant_of_qwen_has_the_settings_of_its_phase_and_a_split_its_own_samples(name: str, tmp_path: Path) -> None:
    study = getattr(qwen_studies, name)(tmp_path)
    for arm in study.arms:
        settings, (phase,) = study.settings(arm, 1), arm.phases
        others = {*qwen_studies.TRAINED} - {phase}
        assert (settings.model, settings.base_precision, settings.phases) == ("qwen-0.5b", "bf16", (phase,))
        assert not [each for each in arm.settings if each.split(".")[0] in others]
        assert phase == "sft" or settings.phase(phase).max_tokens_sampled == 400_000
        for split in arm.measured_on:
            command = shlex.join(study.bench_command(arm, 1, split))
            assert f"--samples {study.samples if split.samples is None else split.samples} " in command
            assert f"x{study.samples_on(split)}" in command.split("bench/")[1]


def test_variants_on_programs_differ_in_their_phases_of_rl_alone_and_sample_as_many_tokens(tmp_path: Path) -> None:
    study = qwen_studies.programs(tmp_path)
    known = {arm.name.removeprefix("programs-"): study.settings(arm, 1) for arm in study.arms}
    rl = {name: known[name] for name in ("simple", "fresh", "cont")}
    assert len({(settings.sft, settings.ppo, settings.reward) for settings in rl.values()}) == 1
    assert rl["cont"].sft == known["sft"].sft != known["longer-sft"].sft
    for settings in rl.values():
        budgets = [settings.binary.max_tokens_sampled, settings.partial.max_tokens_sampled]
        named = ["binary" in settings.phases, "partial" in settings.phases]
        assert budgets == [40_000 // sum(named) if each else None for each in named]


def test_all_variants_of_the_starter_table_have_as_many_updates() -> None:
    study = planned("starter", Path("runs"))
    for arm in study.arms:
        steps_of = phase_steps(study.settings(arm, 42))
        updates = sum(count for phase, count in steps_of.items() if phase != "sft")
        assert updates == (0 if steps_of.keys() == {"sft"} else 40)


def test_the_papers_recipe_keeps_the_papers_updates() -> None:
    study = planned("paper-v100", Path("runs"))
    found = {arm.name: phase_steps(study.settings(arm, 42)) for arm in study.arms}
    assert found["eval-cont"] == {"sft": 600, "binary": 500, "partial": 500}
    assert found["eval-simple"]["binary"] == found["eval-fresh"]["partial"] == 500
    assert found["eval-sched"]["scheduled"] == 1000


def test_baselines_have_the_updates_of_one_ppo_variant_and_are_trained_by_default_with_the_starter_recipe() -> None:
    paper = planned("paper-v100", Path("runs"), "binary.steps=70", variants=("simple", "rft", "ssd"))
    assert [phase_steps(paper.settings(arm, 42)) for arm in paper.arms] == [
        {"sft": 600, phase: 70} for phase in ("binary", "rft", "ssd")
    ]
    studies = {recipe: planned(recipe, Path("runs")) for recipe in ("starter", "paper-v100")}
    trained = {recipe: {arm.title for arm in study.arms} for recipe, study in studies.items()}
    assert trained["starter"] - trained["paper-v100"] == {"RFT", "SSD"}


def test_smollm2_is_trained_on_clean_problems_and_evaluated_greedily_on_three_benchmarks() -> None:
    study = planned("smollm2", Path("runs"))
    commands = [study.bench_command(study.arms[1], 42, split) for split in study.splits]
    evaluated = [words[words.index("--problems") + 1] for words in commands]
    assert evaluated == ["mbpp:test", "humaneval:test", "starter:eval"]
    assert {arm.split.train for arm in study.arms} == {"mbpp:clean"}
    assert {(words[words.index("--temperature") + 1], words[words.index("--samples") + 1]) for words in commands} == {
        ("0", "1")
    }
    sampled = planned("smollm2", Path("runs"), samples=8)
    assert "--temperature" not in sampled.bench_command(sampled.arms[1], 42, sampled.splits[0])
    own = planned("smollm2", Path("runs"), train="train.jsonl", eval="eval.jsonl")
    assert [split.name for split in own.splits] == ["own"]


def test_a_quick_study_has_a_short_sft_in_every_recipe_unless_the_user_says_otherwise() -> None:
    for given, expected in (((), 10), (("sft.steps=12",), 12), (("sft.steps=3",), 3)):
        study = planned("paper-exact", Path("runs"), *given, quick=True)
        assert {study.settings(arm, 42).sft.steps for arm in study.arms} == {expected}


def test_the_papers_variants_are_trained_as_in_the_paper_and_evaluated_as_trained() -> None:
    study = planned("paper-exact", Path("runs"), "ppo.max_tokens=300", device="cpu", threads=3)
    found = {arm.name: study.settings(arm, 42) for arm in study.arms}
    assert list(found) == ["eval-sft", "eval-simple", "eval-fresh", "eval-cont"]
    assert {(each.binary.steps, each.partial.steps) for each in found.values()} == {(500, 500)}
    assert {(each.ppo.max_tokens, each.device, each.reward.extract) for each in found.values()} == {(300, "cpu", "raw")}
    commands = [step.command for step in all_steps(study, 1)]
    asked = ("--max-tokens 300", "--max-prompt-tokens 1024", "--extract raw", "--device cpu", "--threads 3")
    for command in commands:
        if command.startswith("sce bench"):
            assert all(words in command for words in asked)
        elif command.startswith("sce train"):
            assert "--device cpu --set ppo.max_tokens=300" in command


def test_a_gradual_variant_has_as_many_updates_as_the_changed_phases() -> None:
    study = planned("paper-v100", Path("runs"), "binary.steps=70", "partial.steps=30", variants=("sched",))
    assert study.settings(study.arms[0], 42).scheduled.steps == 100


@pytest.mark.parametrize(
    ("recipe", "override", "instead"),
    [
        ("starter", "binary.steps=9", "--updates"),
        ("paper-exact", "seed=1", "--seeds"),
        ("paper-exact", "problems=x.jsonl", "--train and --eval"),
        ("paper-exact", "phases=['sft']", "--variants"),
        ("paper-exact", " device = 'cpu'", "--device"),
        ("starter", "snapshot_every=3", "your own recipe"),
    ],
)
def test_what_a_study_decides_itself_cannot_be_overridden(recipe: str, override: str, instead: str) -> None:
    with pytest.raises(UsageError, match=instead):
        planned(recipe, Path("runs"), override)


def test_evaluations_share_the_cores_unless_a_number_of_threads_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("study_engine.table3.cpu_count", lambda: 8)
    made = [
        planned(recipe, Path("runs"), jobs=jobs).threads for recipe in ("paper-exact", "starter") for jobs in (1, 3)
    ]
    assert made == [8, 2, 1, 1]
    assert planned("starter", Path("runs"), jobs=3, threads=5).threads == 5


def test_a_base_model_in_a_gguf_file_is_evaluated_in_torch_like_the_policies(tmp_path: Path) -> None:
    (tmp_path / "base.gguf").touch()
    study = planned("paper-v100", tmp_path, f"model='{tmp_path}/base.gguf'", variants=("sft",), seeds=1)
    first, base, _, _, policy = all_steps(study, 1)
    assert f"{tmp_path}/seed-42/eval-sft:base" in base.words
    assert first.title == "eval-sft, seed 42: training" == (base.after and base.after.title)
    assert "--base-precision fp32" in base.command
    assert "--base-precision fp32" in policy.command
    # The other variants have the same base.
    part = replace(study, arms=(replace(study.arms[0], name="eval-other"),))
    assert part.base_command(part.splits[0]) == study.base_command(study.splits[0])

    itself, *_ = all_steps(replace(study, base_run=None), 1)
    assert str(tmp_path / "base.gguf") in itself.words
    assert "--base-precision" not in itself.command


def test_seeds_are_worked_through_a_few_at_a_time_and_neighbors_share_no_seed() -> None:
    study = planned("starter", Path("runs"), seeds=4)
    trainings = [title for chain in chains(study, 2) if "training" in (title := chain.steps()[0].title)]
    seeds = [int(title.partition("seed ")[2].partition(":")[0]) for title in trainings]
    assert set(seeds[: len(seeds) // 2]) == {42, 43}
    assert all(first != second for first, second in itertools.pairwise(seeds))


def test_snapshots_are_counted_over_all_phases_and_end_before_the_last() -> None:
    study = planned("starter", Path("runs"), seeds=1, updates=60)
    arms = {arm.name: arm for arm in study.arms}
    found = study.measured(arms["eval-cont"], 42, arms["eval-cont"].split)
    run = "runs/seed-42/eval-cont"
    assert found == [
        Measured("policy", run),
        Measured("step-20", f"{run}/phases/2-binary/snapshots/step-000020", 20),
        Measured("step-50", f"{run}/phases/3-partial/snapshots/step-000020", 50),
        Measured("q8_0", f"{run}/exports/eval-cont-q8_0.gguf"),
    ]
    elsewhere = study.measured(arms["eval-cont"], 42, arms["hard-cont"].split)
    assert [each.name for each in elsewhere] == ["policy"]


def test_a_base_model_of_its_own_is_made_first_and_trained_from() -> None:
    study = planned("starter", Path("runs"))
    (step,) = preparations(list(chains(study, 1)))
    assert step.command.startswith("python benchmarks/starter/pretrain.py --init nano")
    for arm in study.arms:
        model = study.settings(arm, 42).model
        assert model == ("runs/bases/nano-hard" if arm.split.name == "hard" else "nano")


@pytest.mark.slow
def test_the_pretraining_of_a_base_is_a_script_that_runs() -> None:
    (step,) = preparations(list(chains(planned("starter", Path("runs")), 1)))
    shown = subprocess.run([*step.process, "--help"], capture_output=True, text=True, check=True)
    assert "--hard-share" in shown.stdout


def test_what_no_study_can_be_made_of_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("")
    with pytest.raises(UsageError, match="--eval"):
        planned(str(tmp_path / "mine.toml"), tmp_path)
    with pytest.raises(UsageError, match="'sparse'"):
        planned("starter", tmp_path, variants=("sft", "sparse"))
    with pytest.raises(UsageError, match="at least 2"):
        planned("starter", tmp_path, updates=1)


# What a finished study leaves, written by hand.

EVAL, HARD = Split("eval", "starter:plain-train", "starter:eval"), Split("hard", "starter:hard-train", "starter:hard")


def test_changed_values_are_those_that_are_not_the_defaults() -> None:
    @dataclass(frozen=True)
    class Inner:
        rate: float = setting(0.5, "A rate.")

    @dataclass(frozen=True)
    class Settings:
        steps: int = setting(3, "Steps.")
        limit: int | None = setting(3, "A limit.")
        inner: Inner = field(default_factory=Inner)

    assert changed_values(Settings()) == {}
    changed = Settings(steps=5, limit=2, inner=Inner(0.25))
    assert changed_values(changed) == {"steps": 5, "limit": 2, "inner": {"rate": 0.25}}
    assert changed_values(Settings(limit=None)) == {"limit": None}


def test_what_nohup_started_goes_on_without_its_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with on_ending_signals(steps._interrupt):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_step_imports_what_we_do_and_nothing_of_the_folder_it_runs_in(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("print('mine')\nraise SystemExit(1)\n")
    ended = subprocess.run(
        [*module_command("securecoderl_edge"), "score", "nope.py", "--input", "1", "--expect", "1"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "nope.py" in ended.stderr


def test_a_quick_study_has_every_step_of_the_whole_one_and_less_in_each() -> None:
    whole, quick = (planned("starter", Path("runs"), **size) for size in ({"seeds": 1}, {"quick": True}))
    assert [step.title for step in all_steps(quick, 2)] == [step.title for step in all_steps(whole, 2)]
    (base,) = preparations(list(chains(quick, 2)))
    assert base.words[base.words.index("--steps") + 1] == "20"
    for arm in quick.arms:
        reinforced = sum(count for phase, count in phase_steps(quick.settings(arm, 42)).items() if phase != "sft")
        assert reinforced == (0 if arm.phases == ("sft",) else 4)


@pytest.mark.parametrize(
    ("stage", "analyzers", "test_id", "expected"),
    [(0, {"gcc": "12"}, "", None), (4, {}, "", None), (4, {"gcc": "12"}, "", 1), (2, {"gcc": "12"}, "SEGV", 0)],
)
def test_only_programs_in_c_that_compile_are_clean_of_sanitizer_reports(
    stage: int, analyzers: dict[str, str], test_id: str, expected: float | None
) -> None:
    clean = next(metric for metric in STUDY_METRICS if metric.name == "sanitizer_clean_rate")
    findings = [{"test_id": test_id}] if test_id else []
    assert clean.of({"stage": stage, "analyzers": analyzers, "findings": findings}) == expected
