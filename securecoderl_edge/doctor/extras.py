"""Which of the optional dependencies are installed, from their metadata alone: nothing is imported."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from securecoderl_edge.doctor.findings import Check, Section, State, install_command

# As in pyproject.toml, which an installed package cannot read; a test compares the two.
BASE = ("click>=8.1", "rich>=13.8", "numpy>=1.26", "bandit>=1.9.1")
EXTRAS = {
    "train": (
        "torch>=2.6",
        "transformers>=5.23",
        "peft>=0.18",
        "safetensors>=0.5",
        "accelerate>=1.0",
        "bitsandbytes>=0.48",
    ),
    "gguf": ("gguf>=0.17", "llama-cpp-python>=0.3.36,<0.4"),
    "onnx": ("onnx>=1.18", "onnxruntime>=1.23", "tokenizers>=0.21", "jinja2>=3.1"),
    "split": ("datasketch>=1.6",),
    "hub": ("huggingface-hub>=0.30", "pyarrow>=15"),
    "plots": ("matplotlib>=3.8",),
    "docs": ("mkdocs-material>=9.6,<10",),
    "dev": (
        "build>=1.2",
        "coverage>=7.10",
        "pytest>=8.0",
        "hypothesis>=6.100",
        "jinja2>=3.1",
        "ruff>=0.8",
        "mypy>=1.13",
    ),
}
NOTES = {"gguf": "  (llama-cpp-python is built from source: a C++ compiler and about four minutes)"}


def examine_extras() -> Section:
    """Base and extras: the version of each package, or that it is missing or outside what the project asks for."""
    section = Section({})
    for extra, requirements in {"base": BASE, **EXTRAS}.items():
        found = {_name(requirement): installed_version(_name(requirement)) for requirement in requirements}
        missing = [name for name, installed in found.items() if installed is None]
        unfit = [each for each in requirements if not satisfies(found[_name(each)], each)]
        section.facts[extra] = {"installed": not missing, "packages": found}
        state: State = "ok"
        if missing:
            state = "bad" if extra == "base" else "missing"
        elif unfit:
            state = "note"
        shown = ", ".join(f"{name} {installed or 'is missing'}" for name, installed in found.items())
        asked = f"; asked for: {', '.join(unfit)}" if unfit and not missing else ""
        step = "" if state == "ok" else install_command("" if extra == "base" else extra) + NOTES.get(extra, "")
        section.findings.append(Check("extras", extra, state, shown + asked, step))
    return section


def installed_version(package: str) -> str | None:
    """The version of a distribution, None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def satisfies(installed: str | None, requirement: str) -> bool:
    """Whether a version is within bounds like ``>=0.3.36,<0.4``; None, not installed, contradicts none.

    Only the numbers of a release count: ``2.13.0+cpu`` is 2.13.0.
    """
    if installed is None:
        return True
    have = _release(installed)
    bounds = re.findall(r"(>=|<)\s*([0-9.]+)", requirement)
    return all((have >= _release(bound)) is (sign == ">=") for sign, bound in bounds)


def _name(requirement: str) -> str:
    return re.split(r"[<>=\s]", requirement, maxsplit=1)[0]


def _release(text: str) -> tuple[int, ...]:
    numbers = re.match(r"[0-9.]*", text)
    parts = tuple(int(part) for part in (numbers[0] if numbers else "").split(".") if part)
    while parts and parts[-1] == 0:  # 2.0 is 2
        parts = parts[:-1]
    return parts
