"""Run folders: training writes its results here, and the other commands read them.

runs/<name>/            config.toml environment.json readiness.json metrics.jsonl samples.jsonl report.html
  phases/1-sft/ ...     checkpoints/, evaluations.jsonl, best/, snapshots/, adapter/ (the phase's result, PEFT format)
  policy/               the final adapter, PEFT format, usable alone
  exports/
runs/latest             the name of the latest run
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securecoderl_edge.config import read_toml
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.languages.language import LANGUAGES, PYTHON
from securecoderl_edge.models.adapters import ADAPTER_WEIGHTS
from securecoderl_edge.models.files import MODEL_NAMES
from securecoderl_edge.prompts.styles import OURS, STYLES
from securecoderl_edge.system.files import read_json, write_atomically

RUNS = Path("runs")
LATEST = "latest"
SNAPSHOTS = "snapshots"  # intermediate checkpoints of a phase, one folder each
EVALUATIONS = "evaluations.jsonl"  # of a phase, on the held-out problems
ENVIRONMENT = "environment.json"  # how a run was made; a folder without it is not a run
READINESS = "readiness.json"  # how often the policy passed before RL
DONE_FILE = "done.json"  # next to a finished adapter: how it was made, and its hash


def step_name(step: int) -> str:
    """The folder of a checkpoint or a snapshot, among those of its phase."""
    return f"step-{step:06d}"


def phase_of(folder: Path) -> str:
    """The phase of a folder that `Run.phase_folder` named."""
    return folder.name.partition("-")[2]


@dataclass(frozen=True)
class Budget:
    """Longest completion and prompt in tokens, and the extraction; None where nothing sets it."""

    max_tokens: int | None = None
    max_prompt_tokens: int | None = None
    extract: str | None = None


@dataclass(frozen=True)
class Run:
    """One run folder, finished or not."""

    path: Path

    @property
    def name(self) -> str:
        """The folder's name, also if the path (such as ``.``) does not contain it."""
        return self.path.resolve().name

    @property
    def policy(self) -> Path:
        """The final adapter; exists once all phases are done."""
        return self.path / "policy"

    @property
    def exports(self) -> Path:
        return self.path / "exports"

    @property
    def base_model(self) -> str:
        """The base model of the adapters: ``nano``, a folder or a Hugging Face repo id, as recorded at the start.

        Raises:
            UsageError: the folder is not a run.
            SceError: its record is damaged.
        """
        record = self.path / ENVIRONMENT
        if not record.is_file():
            raise UsageError(f"{self.path}: not a training run (no environment.json); train one with: sce train")
        try:
            return str(read_json(record)["base_model"])
        except (SceError, KeyError):
            raise SceError(f"{record}: base_model is missing; train again in another folder") from None

    @property
    def language(self) -> str:
        """The language of the problems that the run trains on; Python if they have several."""
        try:
            languages = read_json(self.path / ENVIRONMENT)["languages"]
        except (SceError, KeyError):  # of an earlier version, or damaged
            return PYTHON.name
        is_one = isinstance(languages, list) and len(languages) == 1 and languages[0] in LANGUAGES
        return str(languages[0]) if is_one else PYTHON.name

    @property
    def base_sha256(self) -> str | None:
        """SHA-256 of the base model's folder, as recorded at the start (`sha256_of_folder`); None if it is unknown."""
        try:
            digest = read_json(self.path / ENVIRONMENT).get("base_sha256")
        except SceError:
            return None
        return digest if isinstance(digest, str) else None

    @property
    def base_gguf_sha256(self) -> str | None:
        """SHA-256 of the GGUF file that is the base, as recorded at the start; None if it is unknown, or not a file."""
        try:
            record = read_json(self.path / ENVIRONMENT)
        except SceError:
            return None
        name, digest = record.get("base_model"), record.get("base_gguf_sha256")
        # A folder that was once made from a GGUF file has its sum, but may have changed since.
        is_file = isinstance(name, str) and (name in MODEL_NAMES or name.endswith(".gguf"))
        return digest if is_file and isinstance(digest, str) else None

    @property
    def command(self) -> str:
        """The command line that resumes the run: the one that started it."""
        try:
            program, *arguments = map(str, read_json(self.path / ENVIRONMENT)["command"])
        except (SceError, KeyError, TypeError, ValueError):
            program, arguments = "", []
        if program not in ("sce", "__main__.py"):
            return "the command that started it"  # a script of the user
        return shlex.join(["sce", *(word for word in arguments if word != "--no-resume")])

    @property
    def prompt_style(self) -> str:
        """The prompt style that the run trains with; the default style if its settings do not name one.

        Raises:
            SceError: the settings are damaged.
        """
        style = self._setting("prompt", "style", str)
        return style if style in STYLES else OURS.style

    @property
    def budget(self) -> Budget:
        """What the run trains with; nothing of a run without settings.

        Raises:
            SceError: the settings are damaged.
        """
        return Budget(
            self._setting("ppo", "max_tokens", int),
            self._setting("prompt", "max_tokens", int),
            self._setting("reward", "extract", str),
        )

    def _setting(self, table: str, name: str, kind: type) -> Any:
        """A setting in a table of the run's configuration; None if it has none of that kind."""
        config = self.path / "config.toml"
        found = read_toml(config).get(table) if config.is_file() else None
        value = found.get(name) if isinstance(found, dict) else None
        return value if isinstance(value, kind) else None

    def export_path(self, ending: str, part: str = "") -> Path:
        """The path of an export of the policy, or of another ``part`` such as the base; ``ending`` is its format."""
        return self.exports / f"{self.name}{f'-{part}' if part else ''}{ending}"

    def exported_part(self, name: str) -> str:
        """The part of the run that the export ``name`` (from `export_path`) was made of; empty for the policy."""
        parts = "|".join(["base", *(re.escape(phase_of(folder)) for folder in self.phase_folders())])
        found = re.match(rf"{re.escape(self.name)}-((?:{parts})(?:-step-\d+)?)-", name)
        return found[1] if found else ""

    def phase_folder(self, number: int, name: str) -> Path:
        """The folder of the phase ``name``, the ``number``-th from 1."""
        return self.path / "phases" / f"{number}-{name}"

    def phase_folders(self) -> list[Path]:
        """Folders of the phases that began, in order."""
        folders = [path for path in (self.path / "phases").glob("*-*") if path.name.split("-")[0].isdecimal()]
        return sorted(folders, key=lambda path: int(path.name.split("-")[0]))

    def saved(self) -> tuple[str, int | None] | None:
        """The last phase of which something is saved, and its last saved update: None if the phase is finished."""
        for folder in reversed(self.phase_folders()):
            if (folder / "adapter" / DONE_FILE).is_file():
                return phase_of(folder), None
            steps = sorted(path.name for path in folder.glob("checkpoints/step-*"))
            if steps:
                return phase_of(folder), int(steps[-1].removeprefix("step-"))
        return None

    def progress(self) -> str:
        """What of an unfinished run is saved, in words."""
        saved = self.saved()
        if saved is None:
            return "no update is finished"
        phase, step = saved
        return f"{phase} is finished" if step is None else f"update {step} of {phase} is saved"

    def outcomes(self) -> list[tuple[str, dict[str, Any]]]:
        """The finished phases in order, each with the content of its `DONE_FILE`.

        Raises:
            SceError: one is damaged.
        """
        files = [folder / "adapter" / DONE_FILE for folder in self.phase_folders()]
        return [(phase_of(file.parents[1]), read_json(file)) for file in files if file.is_file()]

    def adapter(self, phase: str | None = None) -> Path:
        """The folder of the final adapter, or of one phase's.

        Raises:
            UsageError: no such phase, or it has not finished.
        """
        if phase is None:
            if not (self.policy / ADAPTER_WEIGHTS).is_file():
                raise UsageError(f"{self.path}: training has not finished; resume it with: {self.command}")
            return self.policy
        for folder in self.phase_folders():
            if phase_of(folder) == phase:
                if not (folder / "adapter" / ADAPTER_WEIGHTS).is_file():
                    raise UsageError(f"{self.path}: phase {phase} has not finished; resume it with: {self.command}")
                return folder / "adapter"
        known = ", ".join(map(phase_of, self.phase_folders()))
        raise UsageError(
            f"{self.path}: unknown phase {phase!r}; {f'choose from {known}' if known else 'no phase has started yet'}"
        )


def default_folder(recipe: str) -> Path:
    """The default folder of a run: in `RUNS`, with the name of its recipe or of the recipe's file.

    It never has the name of a model, which commands would take it for.
    """
    name = Path(recipe).name.removesuffix(".toml")
    return RUNS / (f"{name}-run" if name in MODEL_NAMES else name)


def run_of(path: Path) -> Run | None:
    """The run that contains a file or folder, if any; its path is relative if it is below the current folder."""
    for folder in path.resolve().parents:
        if (folder / ENVIRONMENT).is_file():
            return Run(Path(os.path.relpath(folder)) if folder.is_relative_to(Path.cwd()) else folder)
    return None


def mark_latest(run: Run) -> None:
    """Make ``run`` the one that commands use by default, if it is in `RUNS`, where they look."""
    if is_found_by_default(run):
        with write_atomically(RUNS / LATEST) as out:
            out.write(f"{os.path.basename(run.path)}\n")


def is_found_by_default(run: Run) -> bool:
    """Whether commands without a model argument can find ``run``."""
    return run.path.parent.resolve() == RUNS.resolve()


def latest_run() -> Run | None:
    """The run named by ``runs/latest``, if there is one."""
    pointer = RUNS / LATEST
    if not pointer.is_file():
        return None
    name = pointer.read_text(encoding="utf-8", errors="replace").strip()
    # The name comes from a file, so it must not lead out of the folder.
    if not name or name in (".", "..") or "/" in name or not (RUNS / name).is_dir():
        return None
    return Run(RUNS / name)


def newest_run() -> Run | None:
    """The run in `RUNS` that was changed or made the latest most recently, finished or not."""
    latest = latest_run()

    def changed(run: Run) -> float:
        files = [run.path / ENVIRONMENT, run.path / "metrics.jsonl", *([RUNS / LATEST] if run == latest else [])]
        return max((file.stat().st_mtime for file in files if file.is_file()), default=0.0)

    begun = [Run(record.parent) for record in RUNS.glob(f"*/{ENVIRONMENT}") if record.parent.name != LATEST]
    return max([*([latest] if latest else []), *begun], key=changed, default=None)


def only_unfinished() -> str:
    """A message if training has started but no run has finished; empty otherwise."""
    begun = newest_run() if latest_run() is None else None
    return f"no training run has finished; resume {begun.path} with: {begun.command}" if begun else ""


def find_run(text: str) -> Run | None:
    """The run that ``text`` names: its folder, its name under ``runs/``, or ``latest``; None if not found."""
    if text in (LATEST, str(RUNS / LATEST)):
        return latest_run()
    candidates = [Path(text)]
    if text and "/" not in text and text not in (".", ".."):
        candidates.append(RUNS / text)
    return next((Run(path) for path in candidates if os.path.isfile(path / ENVIRONMENT)), None)
