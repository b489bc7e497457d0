"""NVIDIA GPUs as ``nvidia-smi`` names them: what a record says of a machine, and what a child process may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from securecoderl_edge.system.machine import describe_machine, visible_gpus

LISTED = """\
GPU 0: Tesla V100-SXM2-16GB (UUID: GPU-11)
GPU 1: NVIDIA A100 (40 GB) (UUID: GPU-22)
  MIG 1g.5gb      Device  0: (UUID: MIG-33)
  MIG 2g.10gb     Device  1: (UUID: MIG-44)
"""


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{LISTED}END\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return program


@pytest.mark.usefixtures("nvidia_smi")
def test_the_record_of_a_machine_names_its_gpus() -> None:
    names = ["Tesla V100-SXM2-16GB", "NVIDIA A100 (40 GB)", "MIG 1g.5gb      Device  0:", "MIG 2g.10gb     Device  1:"]
    assert describe_machine()["gpus"] == names


@pytest.mark.usefixtures("nvidia_smi")
def test_a_gpu_that_is_split_is_not_used_itself() -> None:
    assert visible_gpus() == ["GPU-11", "MIG-33", "MIG-44"]


def test_the_user_chooses_among_the_gpus(nvidia_smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for chosen, expected in (("", []), ("-1", []), ("1,0", ["1", "0"]), ("GPU-22,-1,0", ["GPU-22"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
        assert visible_gpus() == expected


@pytest.mark.parametrize("broken", ["exit 9", "echo 'No devices were found'"])
def test_a_machine_without_gpus_has_none(nvidia_smi: Path, broken: str) -> None:
    nvidia_smi.write_text(f"#!/bin/sh\n{broken}\n", encoding="utf-8")
    assert visible_gpus() == describe_machine()["gpus"] == []
