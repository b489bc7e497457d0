"""Tries the wheel of a folder as a stranger would: installed in an environment of its own, outside of this repository.

    python tests/packages.py dist [--extra onnx]...      by default without extras; --extra every: each that it knows

For each extra a fresh environment is made, the wheel installed with constraints.txt, and the commands run that it is
enough for. What the extras for a laptop run is exported first, by the environment that this script runs in.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LARGEST_WHEEL = 40 * 10**6
PROBLEM = "Read two integers and print their sum."
FUNCTION = "Write a function area(width, height) that returns the area of a rectangle."
BASE = (
    ("--version",),
    ("doctor",),
    ("score", "double.py", "--input", "21", "--expect", "42"),
    ("models",),
    ("config",),
    ("data", "stats", "starter:eval"),
    ("data", "stats", "mbpp:train"),
    ("data", "split", "starter:eval", "--eval", "1"),
)
TRAIN = (
    ("train", "--max-steps", "1", "--set", "selection.problems=0", "--out", "runs/x"),
    ("bench", "--limit", "2"),
)
GGUF = (("bench", "nano-q8_0.gguf", "--limit", "2"), ("generate", "--model", "nano-q8_0.gguf", "--seed", "1", PROBLEM))
ONNX = (("bench", "nano-onnx-int8", "--limit", "2"), ("generate", "--model", "nano-onnx-int8", "--seed", "1", PROBLEM))
# What works with the extra alone.
COMMANDS = {
    "": BASE,
    "train": TRAIN,
    "gguf": GGUF,
    "onnx": ONNX,
    "laptop": (*GGUF, *ONNX),
    "laptop,smollm2": (("generate", "--model", "smollm2", FUNCTION),),
    "hub": (("data", "import", "problems.jsonl", "--out", "again.jsonl"),),
    "plots": (("score", "double.py", "--input", "21", "--expect", "42"),),
    "serve": (("serve", "--help"),),
    "ray": (("score", "--help"),),
    "all": (*TRAIN, ("export",), ("export", "--format", "onnx"), ("report",), ("generate", "--seed", "1", PROBLEM)),
}


def check_content(wheel: Path) -> None:
    """Size, and what has to be inside.

    Raises:
        SystemExit: something is missing, or it is too large.
    """
    names = set(zipfile.ZipFile(wheel).namelist())
    needed = [
        "py.typed",
        "commands/train.py",
        "export/run.py",
        "languages/guard.c",
        "languages/launch.c",
        "sandbox/inside/zygote.py",
        "serving/page/index.html",
        "training/recipes/starter.toml",
        "models/nano/model.safetensors",
        "models/nano_c/model.safetensors",
        "models/qwen_05b_coder/MODEL_CARD.md",
        "models/qwen_05b_coder/environment.json",
        "models/qwen_05b_coder/qwen-0.5b-coder.gguf",
        "models/qwen_05b_coder/qwen-0.5b-coder.gguf.manifest.json",
        "problems/benchmarks/humaneval.jsonl.gz",
        "problems/benchmarks/mbpp.jsonl.gz",
        "problems/benchmarks/README.md",
        "problems/benchmarks/HUMANEVAL-LICENSE.txt",
        "problems/starter/plain-train.jsonl.gz",
    ]
    missing = [name for name in needed if f"securecoderl_edge/{name}" not in names]
    foreign = [name for name in names if not name.startswith("securecoderl_edge")]
    if missing or foreign or wheel.stat().st_size > LARGEST_WHEEL:
        sys.exit(f"{wheel.name}: missing {missing}, foreign {foreign}, {wheel.stat().st_size} bytes")
    sys.stderr.write(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB\n")


def try_wheel(wheel: Path, extra: str, files: Path) -> None:
    """Install and run in a fresh environment; what fails raises.

    Args:
        files: a folder with what the commands read, linked into the working folder.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        python, work = folder / "venv/bin/python", folder / "Mappe mit Räumen"
        work.mkdir()
        (work / "double.py").write_text("print(2 * int(input()))\n")
        for file in files.iterdir():
            (work / file.name).symlink_to(file)
        empty = size_mb(folder / "venv")
        target = f"{wheel.resolve()}[{extra}]" if extra else str(wheel.resolve())
        install = [str(python), "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), target]
        subprocess.run(install, check=True, cwd=work)
        sys.stderr.write(f"{extra or 'base'}: {size_mb(folder / 'venv') - empty:.0f} MB installed\n")
        for words in COMMANDS[extra]:
            run_command(python, words, work)
            sys.stderr.write(f"{extra or 'base'}: sce {' '.join(words)}: ok\n")
        refuse_reproduce(python, work)


def run_command(python: Path, words: Sequence[str], where: Path) -> None:
    """Run a command of sce; the exit code 1 of ``generate`` is an answer too: no program passed.

    Raises:
        CalledProcessError: it failed.
    """
    command = [str(python), "-m", "securecoderl_edge", *words]
    done = subprocess.run(command, cwd=where, stdout=subprocess.DEVNULL, check=False)
    if done.returncode > (words[0] == "generate"):
        raise subprocess.CalledProcessError(done.returncode, command)


def refuse_reproduce(python: Path, where: Path) -> None:
    """Check that the one command that needs a clone says so.

    Raises:
        SystemExit: it does not.
    """
    command = [str(python), "-m", "securecoderl_edge", "reproduce", "table3"]
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    if done.returncode != 1 or "needs a clone of the repository" not in done.stderr:
        sys.exit(f"sce reproduce: exit code {done.returncode}, {done.stderr}")


def size_mb(folder: Path) -> float:
    """Megabytes of all files below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6


def prepare(files: Path) -> None:
    """What the extras' commands read: problems, an exported model for each runtime."""
    from securecoderl_edge import api
    from securecoderl_edge.problems.problem_file import write_problems

    write_problems(files / "problems.jsonl", api.load_problems("starter:eval")[:5])
    for words in (("nano", "--quant", "q8_0"), ("nano", "--format", "onnx", "--quant", "int8")):
        run_command(Path(sys.executable), ("export", *words), files)


def main() -> None:
    """Parse the command line and try."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--extra", action="append", choices=["every", *filter(None, COMMANDS)])
    arguments = parser.parse_args()
    (wheel,) = arguments.folder.glob("*.whl")
    check_content(wheel)
    extras = ["", *(arguments.extra or [])] if "every" not in (arguments.extra or []) else list(COMMANDS)
    with tempfile.TemporaryDirectory() as files:
        if arguments.extra:
            prepare(Path(files))
        for extra in extras:
            try_wheel(wheel, extra, Path(files))
    sys.stdout.write(f"{wheel.name} works with: {', '.join(extra or 'no extra' for extra in extras)}\n")


if __name__ == "__main__":
    main()
