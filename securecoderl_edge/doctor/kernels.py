"""llama.cpp: its build, and a test of its quantized kernels on this processor.

The build of llama-cpp-python by gcc 12 dies on processors with AMX as soon as two tokens are decoded together
(llama.cpp issue 20824), and a build made elsewhere may use instructions that are not here.
"""

from __future__ import annotations

import importlib.util
import re
import tempfile
from typing import Any

from securecoderl_edge.doctor.extras import NOTES
from securecoderl_edge.doctor.findings import CHILD_SECONDS, Section, State
from securecoderl_edge.errors import install_command
from securecoderl_edge.system.processes import Answers, ask

WORKER = "securecoderl_edge.doctor.kernel_worker"
QUANTS = ("q8_0", "q4_0")
# The name of each way to load a model, and whether it repacks weights (llama.cpp's `use_extra_bufts`).
WAYS = {"stock": True, "plain": False}
# Relative to the largest logit; the errors of correct kernels were below 1e-3 and 2e-2.
MOST_BATCH_ERROR, MOST_FLOAT_ERROR = 1e-2, 5e-2
_REBUILD = "rebuild it on this machine: pip install --force-reinstall --no-deps --no-cache-dir 'llama-cpp-python<0.4'"


def examine_llama_cpp() -> Section:
    """Build facts, and each quantized type decoded with llama.cpp's own settings and with those of `sce`."""
    section = Section("llama_cpp", {"installed": False})
    add = section.add

    step = install_command("gguf") + NOTES["gguf"]
    if importlib.util.find_spec("llama_cpp") is None:
        add("llama.cpp", "missing", "llama-cpp-python is not installed: GGUF files cannot run", step)
        return section
    section.facts["installed"] = True
    imported = _ask(None, False)
    if not imported.messages:
        add("llama.cpp", "bad", f"llama_cpp cannot be imported: {imported.death}", _REBUILD)
        return section
    build = imported.messages[0]
    used = "stock" if build["sound_repacking"] else "plain"
    features = re.findall(r"(\w+) = 1\b", build["system_info"])
    section.facts |= {"version": build["version"], "features": features, "way": used}
    add("build", "ok", f"llama-cpp-python {build['version']}: {' '.join(features) or 'no CPU features'}")
    if importlib.util.find_spec("gguf") is None:
        add("kernels", "missing", "not tested: the gguf package, which writes the test files, is not installed", step)
        return section
    section.facts["kernels"] = {}
    for quant in QUANTS:
        tried = {name: _result(_ask(quant, extra_buffers)) for name, extra_buffers in WAYS.items()}
        section.facts["kernels"][quant] = tried
        add(f"{quant} kernels", *judge(tried, used))
    return section


def judge(tried: dict[str, dict[str, Any]], used: str) -> tuple[State, str, str]:
    """State, sentence and next step for one quantized type.

    Args:
        tried: for each of `WAYS`, ``{"works", "death", "batch_error", "float_error"}``.
        used: the one that `sce` loads models with.
    """
    stock, plain = (_trouble(tried[name]) for name in ("stock", "plain"))
    setting = "use_extra_bufts = False"
    if stock and plain:
        return "bad", f"stock kernels {stock} on this CPU; with {setting} they {plain}", _REBUILD
    if stock and used == "plain":
        return "note", f"stock kernels {stock} on this CPU; sce loads models with {setting}, which works", ""
    if stock:
        return "bad", f"stock kernels, which sce uses here, {stock} on this CPU; {setting} would work", _REBUILD
    if plain:
        return "note" if used == "stock" else "bad", f"stock kernels work; with {setting} they {plain}", _REBUILD
    batch, exact = (max(tried[name][error] for name in tried) for error in ("batch_error", "float_error"))
    shown = f"error of a batch of two tokens: {batch:.1g} relative to single tokens, {exact:.1%} to float weights"
    return "ok", shown if used == "stock" else f"{shown} (sce uses {setting} anyway, as in every build with AMX)", ""


def _ask(quant: str | None, extra_buffers: bool) -> Answers:
    """Run each trial in its own child: a crash in one does not affect the others."""
    with tempfile.TemporaryDirectory(prefix="sce-doctor-") as folder:
        request = {"folder": folder, "extra_buffers": extra_buffers, "quant": quant}
        return ask(WORKER, request, CHILD_SECONDS)


def _result(answers: Answers) -> dict[str, Any]:
    if len(answers.messages) < 2:  # the build, then the errors
        return {"works": False, "death": answers.death or "no answer", "batch_error": None, "float_error": None}
    batch, exact = (answers.messages[1][error] for error in ("batch_error", "float_error"))
    works = batch <= MOST_BATCH_ERROR and exact <= MOST_FLOAT_ERROR
    return {"works": works, "death": "", "batch_error": batch, "float_error": exact}


def _trouble(result: dict[str, Any]) -> str:
    if result["works"]:
        return ""
    if result["death"]:
        return f"crash ({result['death']})"
    return f"compute wrong results (error {max(result['batch_error'], result['float_error']):.2g})"
