"""The machine itself: Python, processor, memory, load."""

from __future__ import annotations

import platform

from securecoderl_edge import __version__
from securecoderl_edge.doctor.findings import Section, State, gibibytes
from securecoderl_edge.sandbox.limits import Limits
from securecoderl_edge.sandbox.pool import default_workers
from securecoderl_edge.system.machine import available_memory_bytes, cpu_flags, describe_machine
from securecoderl_edge.text import counted

OLDEST_PYTHON = (3, 11)
# Processor flags, as Linux names them, by which llama.cpp and torch choose kernels.
FEATURES = {
    "x86_64": ("avx2", "avx512f", "avx512_bf16", "amx_int8", "amx_bf16"),
    "aarch64": ("asimd", "asimddp", "i8mm", "bf16", "sve"),
}


def examine_host() -> Section:
    """Versions, processor features, memory that new processes may fill, load."""
    facts = describe_machine()
    known = FEATURES.get(platform.machine(), ())
    flags = cpu_flags()
    facts |= {
        "architecture": platform.machine(),
        "features": {name: name in flags for name in known} if flags else {},
        "available_memory_bytes": available_memory_bytes(),
        "default_workers": default_workers(Limits()),
    }
    section = Section("machine", facts)
    add = section.add

    oldest = ".".join(map(str, OLDEST_PYTHON))
    add("Python", "ok", f"{platform.python_version()} (needs {oldest} or newer)")
    add("sce", "ok", __version__)
    cores = counted(facts["cores"], "usable core")
    add("processor", "ok", f"{facts['cpu']}, {cores}, {facts['system']} {platform.machine()}")
    add("features", *_describe_features(facts["features"]))
    free, limit = facts["available_memory_bytes"], Limits().memory_mib << 20
    memory = f"{gibibytes(free)} free for new processes of {gibibytes(facts['memory_bytes'])}"
    programs = counted(facts["default_workers"], "program")
    if free < limit:
        add("memory", "note", f"{memory}: less than the limit of one tested program", "close other programs")
    else:
        add("memory", "ok", f"{memory}: enough to test {programs} at a time")
    add("load", *_describe_load(facts["load_average"], facts["cores"]))
    return section


def _describe_features(features: dict[str, bool]) -> tuple[State, str]:
    if not features:
        return "note", "unknown on this system"
    here, absent = ([name for name, has in features.items() if has is wanted] for wanted in (True, False))
    return "ok", (" ".join(here) or "none that sce uses") + (f"; without {' '.join(absent)}" if absent else "")


def _describe_load(load: list[float], cores: int) -> tuple[State, str]:
    if not load:
        return "note", "unknown on this system"
    shown = " ".join(f"{each:.2f}" for each in load)
    if load[0] > cores:
        return "note", f"{shown}: other processes use the cores, so speed measurements are unreliable"
    return "ok", shown
