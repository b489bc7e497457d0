"""Cost of writing an export of a 1.3 B model: peak anonymous memory and seconds per format.

    python benchmarks/export_cost.py --tokenizer DIR --json benchmarks/results/export-cost.json

Random float16 weights of DeepSeek-Coder-1.3B's shape with a LoRA adapter of rank 16 are written in each format by a
process of its own, without the verification that ``sce export`` adds: that runs in other processes and needs what
transformers needs. Beside them: loading the same model whole with transformers, the first step of converters that build
it in memory, and copying as many bytes as the f16 file has, which is as fast as this disk.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from random_model import make_model
from record import publish, worker

GIB = 1 << 30
FORMATS = (
    "gguf-f16",
    "gguf-q8_0",
    "gguf-q4_k_m",
    "onnx-f32",
    "onnx-int8",
    "onnx-int4",
    "portable-f32",
    "portable-f16",
    "adapter-f16",
)


class PeakAnonymous:
    """The most anonymous memory that this process has had while it was watched."""

    def __init__(self) -> None:
        self.bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakAnonymous:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
            found = next(line for line in lines if line.startswith("RssAnon"))
            self.bytes = max(self.bytes, int(found.split()[1]) * 1024)


def write_adapter_folder(base: Path, folder: Path) -> None:
    """A LoRA adapter of rank 16 on q, k, v and o, random, in PEFT's format."""
    import torch
    from safetensors.torch import save_file

    from securecoderl_edge.models.architecture import read_architecture

    shape, tensors = read_architecture(base), {}
    for layer in range(shape.layers):
        for name, (rows, columns) in shape.linears().items():
            if name.startswith("self_attn"):
                stem = f"base_model.model.model.layers.{layer}.{name}"
                tensors[f"{stem}.lora_A.weight"] = torch.randn(16, columns) * 0.01
                tensors[f"{stem}.lora_B.weight"] = torch.randn(rows, 16) * 0.01
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 16, "lora_alpha": 32, "bias": "none",
        "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"], "base_model_name_or_path": str(base),
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")


def work(what: str, base: Path, adapter: Path, folder: Path) -> dict[str, Any]:
    """Write one format in this process."""
    kind, _, quant = what.partition("-")
    started = time.monotonic()
    with PeakAnonymous() as peak:
        if what == "load":
            import torch
            from transformers import AutoModelForCausalLM

            model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
            sum(float(parameter.sum()) for parameter in model.parameters())
        elif what == "copy":
            shutil.copyfile(folder / "gguf-f16", folder / "copy")
            with (folder / "copy").open("rb+") as copied:
                os.fsync(copied.fileno())
        elif kind in ("onnx", "portable"):
            from securecoderl_edge.export.onnx import write_onnx

            (folder / what).mkdir()
            write_onnx(base, adapter, quant, folder / what, portable=kind == "portable")
        elif kind == "adapter":
            from securecoderl_edge.export.gguf import write_adapter

            write_adapter(base, adapter, quant, folder / what, "adapter")
        elif quant in ("f16", "q8_0"):
            from securecoderl_edge.export.gguf import write_gguf

            write_gguf(base, adapter, quant, folder / what, "model")
        else:
            from securecoderl_edge.export.quantize import quantize

            quantize(folder / "gguf-f16", folder / what, quant)
    seconds = time.monotonic() - started
    written = [path for path in (folder / what).rglob("*") if path.is_file()] or [folder / what]
    size = sum(path.stat().st_size for path in written if path.exists())
    # llama.cpp quantises in a child process, of which there is only the resident size, mapped files included.
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return {
        "peak_anon_gib": round(peak.bytes / GIB, 3),
        "child_peak_rss_gib": round(child / GIB, 3),
        "seconds": round(seconds, 1),
        "file_gib": round(size / GIB, 3),
    }


def main() -> None:
    """Make the model, write every format in a process of its own, publish."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokenizer", type=Path, help="folder with the tokenizer of the model; else the built-in one")
    parser.add_argument("--quick", action="store_true", help="two layers")
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--worker", nargs=4, metavar=("WHAT", "BASE", "ADAPTER", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        what, *paths = arguments.worker
        sys.stdout.write(f"{json.dumps(work(what, *map(Path, paths)))}\n")
        return
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_model(folder / "base", arguments.tokenizer, layers=2 if arguments.quick else None)
        write_adapter_folder(folder / "base", folder / "adapter")
        for what in (*FORMATS, "copy", "load"):
            found[what] = worker(__file__, "--worker", what, folder / "base", folder / "adapter", folder)
            sys.stdout.write(f"{what:12s} {found[what]}\n")
            sys.stdout.flush()
            if what not in ("gguf-f16",):
                path = folder / what
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    publish(
        {
            "gguf_f16_peak_anon_gib": found["gguf-f16"]["peak_anon_gib"],
            "onnx_int8_peak_anon_gib": found["onnx-int8"]["peak_anon_gib"],
            "onnx_int4_peak_anon_gib": found["onnx-int4"]["peak_anon_gib"],
            "gguf_f16_seconds": found["gguf-f16"]["seconds"],
            "onnx_int8_seconds": found["onnx-int8"]["seconds"],
            "onnx_int4_seconds": found["onnx-int4"]["seconds"],
            "load_whole_peak_anon_gib": found["load"]["peak_anon_gib"],
            "gguf_f16_over_copying": round(found["gguf-f16"]["seconds"] / found["copy"]["seconds"], 2),
            "formats": found,
        },
        arguments.json,
    )


if __name__ == "__main__":
    main()
