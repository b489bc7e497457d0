"""Tries the wheel of a folder as a stranger would: installed alone, outside of this repository, with the base install.

    python tests/packages.py dist [--extra onnx]...

For each extra (and without any) a fresh environment is made, the wheel installed with constraints.txt, and the
commands run that it is enough for.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LARGEST_WHEEL = 25 * 10**6
_PROGRAM = "print(2 * int(input()))\n"
# What works with the extra alone.
COMMANDS = {
    "": (
        ("--version",),
        ("doctor",),
        ("score", "double.py", "--input", "21", "--expect", "42"),
        ("data", "stats", "starter:eval"),
    ),
    "train": (
        ("train", "--max-steps", "1", "--set", "selection.problems=0", "--out", "runs/x"),
        ("bench", "--limit", "2"),
    ),
    "onnx": (("bench", "--help"),),
    "gguf": (("bench", "--help"),),
    "plots": (("report", "--help"),),
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
        "recipes/starter.toml",
        "starter/nano/model.safetensors",
    ]
    missing = [name for name in needed if f"securecoderl_edge/{name}" not in names]
    foreign = [name for name in names if not name.startswith("securecoderl_edge")]
    if missing or foreign or wheel.stat().st_size > LARGEST_WHEEL:
        sys.exit(f"{wheel.name}: missing {missing}, foreign {foreign}, {wheel.stat().st_size} bytes")


def try_wheel(wheel: Path, extra: str) -> None:
    """Install and run in a fresh environment; what fails raises."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        python, work = folder / "venv/bin/python", folder / "work with spaces"
        work.mkdir()
        (work / "double.py").write_text(_PROGRAM)
        target = f"{wheel.resolve()}[{extra}]" if extra else str(wheel.resolve())
        install = [str(python), "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), target]
        subprocess.run(install, check=True, cwd=work)
        for words in COMMANDS[extra]:
            subprocess.run(
                [str(python), "-m", "securecoderl_edge", *words], check=True, cwd=work, stdout=subprocess.DEVNULL
            )
            sys.stderr.write(f"{extra or 'base'}: sce {' '.join(words)}: ok\n")


def main() -> None:
    """Parse the command line and try."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--extra", action="append", choices=[extra for extra in COMMANDS if extra])
    arguments = parser.parse_args()
    (wheel,) = arguments.folder.glob("*.whl")
    check_content(wheel)
    for extra in ["", *(arguments.extra or [])]:
        try_wheel(wheel, extra)


if __name__ == "__main__":
    main()
