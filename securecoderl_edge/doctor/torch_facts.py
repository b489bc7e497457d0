"""torch: its build, the dtypes that are fast on this machine, and the limits of each GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from securecoderl_edge.doctor.findings import CHILD_SECONDS, Section, State, gibibytes
from securecoderl_edge.errors import install_command
from securecoderl_edge.models.gpus import has_kernels, torch_with_kernels
from securecoderl_edge.models.sizes import HAS_BF16, HAS_INT8_UNITS, Formats
from securecoderl_edge.system.heap import uses_glibc_malloc
from securecoderl_edge.system.machine import memory_limit_bytes
from securecoderl_edge.system.processes import ask
from securecoderl_edge.training.base import describe_base
from securecoderl_edge.training.memory import plan_memory
from securecoderl_edge.training.recipe import resolve

WORKER = "securecoderl_edge.doctor.torch_worker"
_NEEDED_CAPABILITY = {"int8": (0, 0), "fp16": (0, 0), "fp32": (0, 0), "int8-bnb": HAS_INT8_UNITS, "bf16": HAS_BF16}


def examine_torch() -> Section:
    """Report the build of torch, the CPU and the GPUs, as a separate process finds them."""
    section = Section("torch", {"installed": False})
    add = section.add

    if importlib.util.find_spec("torch") is None:
        add("torch", "missing", "not installed: needed for training and export", install_command("train"))
        return section
    section.facts["installed"] = True
    answers = ask(WORKER, {}, CHILD_SECONDS)
    for message in answers.messages:
        section.facts |= message
    facts = section.facts
    if answers.death:
        again = f"reinstall it: {install_command('train')} --force-reinstall"
        activity = "search for GPUs" if answers.messages else "import"
        add("torch", "bad", f"{activity} failed: {answers.death}", again)
    if not answers.messages:
        return section
    build = f"CUDA {facts['cuda']}" if facts["cuda"] else f"ROCm {facts['hip']}" if facts["hip"] else "CPU"
    add("build", "ok", f"torch {facts['version']}, {build} build, {facts['threads']} threads")
    if facts["cpu_has_bf16"]:
        add("CPU", "ok", "native bfloat16 arithmetic; sce uses it")
    else:
        add("CPU", "note", "no native bfloat16 arithmetic (AVX-512 BF16 or AMX): sce computes in fp32")
    if uses_glibc_malloc():
        sentence = "glibc's, whose search for free memory slows training on a CPU down"
        add("malloc", "note", sentence, "apt-get install libjemalloc2, then LD_PRELOAD=libjemalloc.so.2 sce train ...")
    add("recipe", *judge_recipe("starter", "cpu", memory_limit_bytes()))
    gpus: list[dict[str, Any]] = facts.get("gpus", [])
    for gpu in gpus:
        for state, sentence, step in judge_gpu(gpu, facts["architectures"], build):
            add("GPU", state, sentence, step)
        add("recipe", *judge_recipe("paper-v100", "cuda", gpu["memory_bytes"]))
    if not gpus and not answers.death:
        add("GPU", "note", f"none: {facts['why_none'] or 'sce trains on the CPU'}")
    return section


def judge_gpu(gpu: dict[str, Any], architectures: Sequence[str], build: str) -> list[tuple[State, str, str]]:
    """State, sentence and next step of each finding about a GPU.

    Args:
        gpu: ``{"name", "capability": [major, minor], "memory_bytes", "free_bytes"}``.
        architectures: as in `has_kernels`.
        build: in words, for the sentence.
    """
    capability: tuple[int, int] = tuple(gpu["capability"])
    number = "{}.{}".format(*capability)
    sizes = f"{gibibytes(gpu['memory_bytes'])} ({gibibytes(gpu['free_bytes'])} free)"
    name = f"{gpu['name']}, compute capability {number}, {sizes}"
    findings: list[tuple[State, str, str]] = []
    if build.startswith("CUDA") and not has_kernels(capability, architectures):
        step = torch_with_kernels(capability)
        known = " ".join(architectures) or "none"
        findings.append(("bad", f"{name}: this torch ({build}) has no kernels for it, only for {known}", step))
    else:
        works = [format for format, needed in _NEEDED_CAPABILITY.items() if capability >= needed]
        findings.append(("ok", f"{name}; supports --base-precision {', '.join(works)} and 8-bit optimizers", ""))
    if capability < HAS_BF16:
        findings.append(("note", f"{gpu['name']}: no bfloat16; sce computes in float16 with loss scaling", ""))
    if capability < HAS_INT8_UNITS:
        needs = "int8-bnb (LLM.int8 of bitsandbytes) needs compute capability 7.5; int8 works"
        findings.append(("note", f"{gpu['name']}: {needs}", ""))
    return findings


def judge_recipe(name: str, device: str, limit: int) -> tuple[State, str, str]:
    """Estimate whether a built-in recipe fits into ``limit`` bytes of the device, from sizes alone."""
    settings = resolve(name, (), {})
    shape = describe_base(settings.model).architecture
    formats = Formats.of(device, *(("int8", "fp16", "fp16") if device == "cuda" else ("fp32", "fp32", "fp32")))
    longest = settings.prompt_room(shape.context)
    peak = max(plan_memory(shape, settings, formats, longest, phase).peak for phase in settings.phases)
    sentence = f"{name}: estimated peak {gibibytes(peak)} of {gibibytes(limit)}"
    if peak <= limit:
        return "ok", sentence, ""
    return "note", sentence, f"to see which settings to lower: sce train --recipe {name} --dry-run"
