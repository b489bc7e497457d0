"""Child process of `torch_facts`: imports torch, which takes seconds and may fail, and reports what it finds."""

from __future__ import annotations

from typing import Any

from securecoderl_edge.errors import first_line
from securecoderl_edge.system import processes
from securecoderl_edge.system.processes import write_message


def main() -> None:
    """Answer with the build and the processor, then with the GPUs."""
    answers = processes.answers()
    import torch

    from securecoderl_edge.system.machine import cpu_has_bf16

    version: Any = torch.version
    build = {
        "version": torch.__version__,
        "cuda": version.cuda,
        "hip": version.hip,
        "threads": torch.get_num_threads(),
        "cpu_has_bf16": cpu_has_bf16(),
    }
    write_message(answers, build)
    write_message(answers, _gpus(torch) if version.cuda or version.hip else {"gpus": [], "why_none": ""})


def _gpus(torch: Any) -> dict[str, Any]:
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return {"gpus": [], "why_none": first_line(error)}
    gpus = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        capability = [properties.major, properties.minor]
        gpus.append(
            {
                "name": properties.name,
                "capability": capability,
                "memory_bytes": properties.total_memory,
                "free_bytes": torch.cuda.mem_get_info(index)[0],
            }
        )
    return {"gpus": gpus, "architectures": torch.cuda.get_arch_list()}


if __name__ == "__main__":
    main()
