"""The variants (arms) of a study, and the ``sce`` commands that train and evaluate them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from securecoderl_edge.models.files import gguf_file
from securecoderl_edge.runs import SNAPSHOTS, Run, step_name
from securecoderl_edge.runtimes.spec import BASE
from securecoderl_edge.training.recipe import phase_steps, resolve
from securecoderl_edge.training.settings import TrainSettings

FIRST_SEED = 42
FINAL = "policy"
_SEED_OF_BASE = 0  # with `Study.own_draws`: no run has this seed


@dataclass(frozen=True)
class Base:
    """A base model that the study makes from nano by more pretraining, on other text.

    Attributes:
        updates: of pretraining. arguments: others of `benchmarks/starter/pretrain.py`.
    """

    name: str
    updates: int
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Split:
    """Training problems, and evaluation problems of the same kind.

    Attributes:
        base: the model that training starts from, if not the recipe's.
        samples: per problem of the evaluation, if not the study's.
    """

    name: str
    train: str
    eval: str
    base: Base | None = None
    samples: int | None = None


@dataclass(frozen=True)
class Arm:
    """One variant of training, for every seed: a row of a table.

    Attributes:
        name: unique in a study; the name of its run folders.
        split: for training. measured_on: splits for evaluation.
        settings: ``KEY=VALUE`` for ``sce train --set``.
        quants: GGUF types for exports of the final policy, which are evaluated as well.
        snapshot_every: updates between the points of its learning curve; None for no curve.
    """

    name: str
    title: str
    split: Split
    phases: tuple[str, ...]
    settings: tuple[str, ...]
    measured_on: tuple[Split, ...]
    quants: tuple[str, ...] = ()
    snapshot_every: int | None = None


@dataclass(frozen=True)
class Measured:
    """One evaluated model of an arm: the final policy, a snapshot, or an export.

    Attributes:
        name: ``policy``, ``step-60`` (number of RL updates so far), or a quantization type.
        source: the argument for ``sce bench``.
    """

    name: str
    source: str
    updates: int | None = None


@dataclass(frozen=True)
class Study:
    """Arms, seeds, and the settings of their evaluation.

    Attributes:
        folder: everything is written below it.
        samples: per problem. is_greedy: one each, by greedy decoding. limit: maximum number of problems of a split.
        comparisons: names of arms whose final policies are compared, the second minus the first.
        own_draws: evaluate only final policies, each with the seed of its training. Otherwise all evaluations use the
            same seed.
        overrides: ``KEY=VALUE`` settings of all arms, in place of the recipe's.
        device: of trainings and evaluations; ``auto`` leaves a training's to the recipe.
        base_run: evaluate a base model in a GGUF file as the training of this arm and seed loads it, in torch and with
            the precision of the policies. None: the file itself.
        evaluation: options of ``sce bench`` in place of those that make it ask and judge as in training.
        threads: CPU threads of an evaluation. base_precision: of its matrices on a CPU, the same on every machine.
    """

    name: str
    recipe: str
    folder: Path
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    samples: int
    limit: int | None = None
    comparisons: tuple[tuple[str, str], ...] = ()
    own_draws: bool = False
    overrides: tuple[str, ...] = ()
    device: str = "auto"
    threads: int = 1
    is_greedy: bool = False
    base_precision: str = "fp32"
    base_run: tuple[Arm, int] | None = None
    evaluation: tuple[str, ...] = ()

    @cached_property
    def splits(self) -> tuple[Split, ...]:
        """All splits for evaluation, in order."""
        return tuple(dict.fromkeys(each for arm in self.arms for each in arm.measured_on))

    def run_folder(self, arm: Arm, seed: int) -> Path:
        """The run of one arm. Arms of a seed have the same parent folder, so that `reuse` finds shared phases."""
        return self.folder / f"seed-{seed}" / arm.name

    def bench_folder(self, arm: Arm, seed: int, split: Split) -> Path:
        """The rows of one arm on a split."""
        return self.run_folder(arm, seed) / "bench" / self.bench_name(split)

    def base_folder(self, split: Split) -> Path:
        """The rows of the base model on a split; the same for all seeds."""
        return self.folder / "base" / self.bench_name(split)

    def bench_name(self, split: Split) -> str:
        """The name of the folder for evaluations of this size."""
        return f"{split.name}{self._size(self.samples_on(split))}"

    def samples_on(self, split: Split) -> int:
        """Samples per problem of a split."""
        return self.samples if split.samples is None else split.samples

    def figures_file(self, arm: Arm, seed: int) -> Path:
        """The figures of one arm, see `figures`."""
        return self.run_folder(arm, seed).with_name(f"{arm.name}{self._size(self.samples)}.json.gz")

    def base_figures_file(self, split: Split) -> Path:
        """The figures of the base model on a split."""
        return self.base_folder(split).with_name(f"{self.bench_name(split)}.json.gz")

    def _size(self, samples: int) -> str:
        problems = "" if self.limit is None else f"-{self.limit}"
        drawn = "greedy" if self.is_greedy else f"x{samples}"
        return f"{problems}-{drawn}{'-own' if self.own_draws else ''}"

    def model(self, split: Split) -> str | None:
        """The base model of a split, if it is not the recipe's."""
        return None if split.base is None else str(self.folder / "bases" / split.base.name)

    def prepare_command(self, split: Split) -> list[str] | None:
        """Arguments of pretraining that make the base model of a split; None if it is the recipe's."""
        model = self.model(split)
        if split.base is None or model is None:
            return None
        return ["--init", "nano", "--steps", str(split.base.updates), *split.base.arguments, "--out", model]

    def settings(self, arm: Arm, seed: int) -> TrainSettings:
        """The settings of ``sce train`` for `train_command`.

        Raises:
            UsageError: they are impossible.
        """
        known = self._known_settings
        if (arm, seed) not in known:
            flags = self._flags(arm) | {"phases": arm.phases, "seed": seed}
            known[arm, seed] = resolve(self.recipe, self._overrides(arm), flags)
        return known[arm, seed]

    @cached_property
    def _known_settings(self) -> dict[tuple[Arm, int], TrainSettings]:
        return {}

    def _flags(self, arm: Arm) -> dict[str, Any]:
        """Flags of ``sce train`` by name, where they are not the recipe's."""
        flags = {"problems": arm.split.train, "phases": ",".join(arm.phases)}
        model = self.model(arm.split)
        if model is not None:
            flags["model"] = model
        return flags if self.device == "auto" else flags | {"device": self.device}

    def train_command(self, arm: Arm, seed: int) -> list[str]:
        """Arguments of ``sce`` that train an arm."""
        words = ["train", "--recipe", self.recipe]
        for name, value in self._flags(arm).items():
            words += [f"--{name}", value]
        for setting in self._overrides(arm):
            words += ["--set", setting]
        return [*words, "--seed", str(seed), "--out", str(self.run_folder(arm, seed))]

    def export_command(self, arm: Arm, seed: int) -> list[str]:
        """Arguments that write the exports of an arm that has any."""
        return ["export", str(self.run_folder(arm, seed)), "--quant", ",".join(arm.quants)]

    def bench_command(self, arm: Arm, seed: int, split: Split) -> list[str]:
        """Arguments that evaluate the models of an arm on a split."""
        sources = [each.source for each in self.measured(arm, seed, split)]
        return [*self._bench(sources, split, seed), "--out", str(self.bench_folder(arm, seed, split))]

    def base_command(self, split: Split) -> list[str]:
        """Arguments that evaluate the base model on a split."""
        run = self.run_of_base(split)
        model = self.base_model(split) if run is None else f"{self.run_folder(*run)}:{BASE}"
        words = self._bench([model], split, _SEED_OF_BASE)
        if not self.evaluation:  # the folder of a base model does not contain the prompt style of the runs
            words += ["--prompt-style", self._recipe_settings.prompt.style]
        return [*words, "--out", str(self.base_folder(split))]

    def run_of_base(self, split: Split) -> tuple[Arm, int] | None:
        """The run whose base is evaluated, if the model of a split is a GGUF file and `base_run` is given."""
        return None if gguf_file(self.base_model(split)) is None else self.base_run

    def base_model(self, split: Split) -> str:
        """The model that training on a split starts from."""
        return self.model(split) or self._recipe_settings.model

    @cached_property
    def _recipe_settings(self) -> TrainSettings:
        return resolve(self.recipe, self.overrides, {})

    def measured(self, arm: Arm, seed: int, split: Split) -> list[Measured]:
        """The models of an arm to evaluate on a split: on another split than its own, only the final policy.

        Once a run is done, snapshots that it did not reach, because a phase ended early, are left out.
        """
        run = self.run_folder(arm, seed)
        final = Measured(FINAL, str(run))
        if split != arm.split or self.own_draws:
            return [final]
        is_done = (run / "policy").is_dir()
        snapshots = [each for each in self._snapshots(arm, seed) if not is_done or Path(each.source).is_dir()]
        exports = [Measured(each, str(self.export_file(arm, seed, each))) for each in arm.quants]
        return [final, *snapshots, *exports]

    def export_file(self, arm: Arm, seed: int, quant: str) -> Path:
        """The path of the exported final policy of an arm."""
        return Run(self.run_folder(arm, seed)).export_path(f"-{quant}.gguf")

    def _bench(self, models: Sequence[str], split: Split, seed: int) -> list[str]:
        words = ["bench", *models, "--problems", split.eval, "--samples", str(self.samples_on(split))]
        words += ["--device", self.device, "--threads", str(self.threads), "--json"]
        if self.is_greedy:
            words += ["--temperature", "0"]
        if not all(map(gguf_file, models)):
            words += ["--base-precision", self.base_precision]
        words += self.evaluation or self._as_in_training()
        if self.limit is not None:
            words += ["--limit", str(self.limit)]
        return [*words, "--seed", str(seed)] if self.own_draws else words

    def _as_in_training(self) -> Iterator[str]:
        settings = self._recipe_settings
        yield from ("--max-tokens", str(settings.ppo.max_tokens), "--extract", settings.reward.extract)
        if settings.prompt.max_tokens is not None:
            yield from ("--max-prompt-tokens", str(settings.prompt.max_tokens))

    def _overrides(self, arm: Arm) -> tuple[str, ...]:
        snapshots = () if arm.snapshot_every is None else (f"snapshot_every={arm.snapshot_every}",)
        return (*self.overrides, *arm.settings, *snapshots)

    def _snapshots(self, arm: Arm, seed: int) -> Iterator[Measured]:
        every, before = arm.snapshot_every, 0
        if every is None:
            return
        steps = phase_steps(self.settings(arm, seed))
        total = sum(count for phase, count in steps.items() if phase != "sft")
        for number, (phase, count) in enumerate(steps.items(), 1):
            if phase == "sft":
                continue
            for step in range(every, count + 1, every):
                updates = before + step
                if updates < total:
                    folder = Run(self.run_folder(arm, seed)).phase_folder(number, phase) / SNAPSHOTS
                    yield Measured(f"step-{updates}", str(folder / step_name(step)), updates)
            before += count
