"""What a run is made of, found and hashed: base model, problems, own reward function, adapters of an earlier run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.adapters import ADAPTER_WEIGHTS, LoraSettings, read_lora_config
from securecoderl_edge.models.files import base_folder, sha256_of_folder
from securecoderl_edge.models.gguf.folder import gguf_source
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.problems.difficulty import Difficulty, difficulty_of
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import digest_of_problems
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.runs import DONE_FILE, ENVIRONMENT, Run, find_run, phase_of
from securecoderl_edge.scoring.own_reward import own_function
from securecoderl_edge.system.files import read_json, sha256_of
from securecoderl_edge.training.settings import TrainSettings

FUNCTION_HASH = "reward_function_sha256"
TEACHER_HASH = "teacher_sha256"
DIFFICULTY_HASH = "difficulty_sha256"

if TYPE_CHECKING:
    from securecoderl_edge.models.device import Compute


@dataclass(frozen=True)
class Inputs:
    """Base model, problems, the initial adapters of policy and reference, and the teacher.

    Attributes:
        hashes: of all of these, by name.
        hold_out_seed: decides which problems are held out. A run that starts from another run holds out the same ones,
            since it would otherwise select checkpoints on problems that its policy was trained on.
        difficulties: of the problems by id; none if the settings do not ask for them.
    """

    base: Path
    problems: list[Problem]
    hashes: dict[str, str]
    hold_out_seed: int
    policy: Path | None = None
    reference: Path | None = None
    teacher: Path | None = None
    difficulties: dict[str, Difficulty] = field(default_factory=dict)

    def paths(self) -> list[Path]:
        """The folders that a run reads."""
        return [path for path in (self.base, self.policy, self.reference, self.teacher) if path is not None]

    def identity(self, compute: Compute) -> dict[str, str]:
        """The hashes, and how a model is computed and read, as far as results depend on it."""
        formats = {
            "base_precision": compute.base_precision,
            "products": str(compute.products),
            "rollout": str(compute.rollout_dtype),
        }
        if {formats["products"], formats["rollout"]} != {"torch.float32"}:
            formats["adapter"] = "apart"  # see `joined_linear`; earlier versions computed it otherwise in 16 bits
        if before := read_tokenizer(self.base).before:
            formats["start"] = str(before)  # earlier versions trained some models without their start token
        return {**self.hashes, **formats}


def find_inputs(
    settings: TrainSettings, download: bool = True, tell: Callable[[str], None] = lambda line: None
) -> Inputs:
    """Find and hash the inputs in the settings.

    Args:
        download: whether to download a model that is given by its Hugging Face repo id.
        tell: called with one line before a GGUF file is checked.

    Raises:
        UsageError: an input is missing, or the run to start from has another base model.
        SceError: unusable problems.
    """
    problems = load_problems(settings.problems, needs_tests=settings.runs_programs)
    base = base_folder(settings.model, download=download, tell=tell)
    hashes = {"base_sha256": sha256_of_folder(base), "problems_sha256": digest_of_problems(problems)}
    if source := gguf_source(base):
        hashes["base_gguf_sha256"] = str(source["sha256"])
    if settings.reward.function is not None:
        hashes[FUNCTION_HASH] = own_function(settings.reward.function).sha256()
    teacher = None
    if (name := settings.teacher_of(*settings.phases)) is not None:
        teacher = base_folder(name, download=download, tell=tell)
        hashes[TEACHER_HASH] = sha256_of_folder(teacher)
    difficulties: dict[str, Difficulty] = {}
    if settings.sampling.difficulty is not None:
        difficulties = difficulty_of(problems, Path(settings.sampling.difficulty))
        hashes[DIFFICULTY_HASH] = sha256_of(Path(settings.sampling.difficulty))
    start = find_start(settings)
    if start is None:
        return Inputs(base, problems, hashes, settings.seed, teacher=teacher, difficulties=difficulties)
    run, adapter = start
    record = read_json(run.path / ENVIRONMENT)
    if record.get("base_sha256") != hashes["base_sha256"]:
        raise UsageError(f"--init {settings.init}: that run has another base model than {settings.model}")
    # The reference of the KL penalty is that run's SFT policy, if it has one.
    supervised = [folder / "adapter" for folder in run.phase_folders() if phase_of(folder) == "sft"]
    reference = next((folder for folder in supervised if (folder / DONE_FILE).is_file()), adapter)
    hashes["init_sha256"] = sha256_of(adapter / ADAPTER_WEIGHTS)
    hashes["reference_sha256"] = sha256_of(reference / ADAPTER_WEIGHTS)
    seed = record.get("hold_out_seed", record.get("seed", settings.seed))
    if not str(seed).isdecimal():
        raise SceError(f"{run.path / ENVIRONMENT}: damaged (its seed is not a number)")
    hashes["hold_out_seed"] = str(seed)
    return Inputs(base, problems, hashes, int(seed), adapter, reference, teacher, difficulties)


def find_start(settings: TrainSettings) -> tuple[Run, Path] | None:
    """The run in ``init``, and its adapter that training starts from; None without ``init``.

    Raises:
        UsageError: no such run, or its adapter is of another form.
    """
    if settings.init is None:
        return None
    run, adapter = _adapter_of(settings.init)
    if not _has_layers_of(adapter, settings.lora):
        raise UsageError(f"--init {settings.init}: its adapter differs from [lora] in rank, alpha or targets")
    return run, adapter


def _adapter_of(init: str) -> tuple[Run, Path]:
    """The run in ``--init``, and its policy or the adapter of the phase after a colon."""
    run, phase = find_run(init), ""
    if run is None and ":" in init:
        name, _, phase = init.rpartition(":")
        run = find_run(name)
    if run is None:
        raise UsageError(f"--init {init}: unknown run. Give a run folder, or its name under runs/")
    return run, run.adapter(phase or None)


def _has_layers_of(adapter: Path, lora: LoraSettings) -> bool:
    config = read_lora_config(adapter)
    targets = config.get("target_modules")
    same_layers = isinstance(targets, list) and sorted(map(str, targets)) == sorted(set(lora.targets))
    return same_layers and (config.get("r"), config.get("lora_alpha")) == (lora.rank, lora.alpha)
