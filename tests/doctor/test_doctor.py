"""`sce doctor`: what it says of machines that lack something, contain nothing, or crash."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import mmap
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from packaging.requirements import Requirement
from places import ROOT

from securecoderl_edge.cli import sce
from securecoderl_edge.config import read_toml
from securecoderl_edge.doctor import Check, Report, Section, extras, host, isolation, kernels, torch_facts, torch_worker
from securecoderl_edge.errors import SceError
from securecoderl_edge.sandbox import describe_levels, selftest
from securecoderl_edge.sandbox.selftest import Attempt, CSelfTest, SelfTest
from securecoderl_edge.system import heap, machine, processes

PROJECT = read_toml(ROOT / "pyproject.toml")["project"]
GROUPS = ("machine", "sandbox", "extras", "llama_cpp", "torch")
WORKS = {"works": True, "death": "", "batch_error": 1e-4, "float_error": 0.01}
CRASHES = {"works": False, "death": "signal SIGSEGV", "batch_error": None, "float_error": None}
V100 = {"name": "Tesla V100-SXM2-16GB", "capability": [7, 0], "memory_bytes": 16 << 30, "free_bytes": 15 << 30}


def needs(*packages: str) -> pytest.MarkDecorator:
    """Skips without importing: what is installed is for the child to import."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(packages)}")


def doctor(*arguments: str) -> Result:
    return CliRunner().invoke(sce, ["doctor", *arguments])


def only(section: Section, name: str) -> Check:
    (finding,) = [each for each in section.findings if each.name == name]
    return finding


@pytest.fixture
def no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a base installation: neither torch nor llama_cpp nor gguf can be found."""
    find = importlib.util.find_spec
    absent = ("torch", "llama_cpp", "gguf")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, package=None: None if name in absent else find(name, package)
    )


@pytest.fixture
def no_selftest(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of everything else; it takes over a second."""
    passed = SelfTest("full", True, (Attempt("start a process", True, "refused"),), {})
    monkeypatch.setattr(isolation, "run_selftest", lambda _: passed)
    monkeypatch.setattr(isolation, "run_c_selftest", lambda _: CSelfTest(True, ()))


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a child module from the source of what it does with ``request`` and ``answers``."""

    def make(body: str) -> str:
        head = (
            "import os, signal\n"
            "from securecoderl_edge.system import processes\n"
            "from securecoderl_edge.system.processes import write_message\n"
            "request, answers = processes.request(), processes.answers()\n"
        )
        (tmp_path / "stand_in_worker.py").write_text(head + body)
        monkeypatch.syspath_prepend(tmp_path)
        return "stand_in_worker"

    return make


def test_one_json_document_has_every_group_and_exit_code_0_means_that_nothing_is_bad() -> None:
    command = [sys.executable, "-m", "securecoderl_edge", "doctor", "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    record = json.loads(shown.stdout)
    assert list(record) == ["ok", *GROUPS, "findings"]
    assert {finding["group"] for finding in record["findings"]} == set(GROUPS)
    bad = [finding for finding in record["findings"] if finding["state"] == "bad"]
    assert bad == []
    assert record["ok"]
    assert shown.returncode == 0
    assert record["sandbox"]["level"] == describe_levels()["level"]


def test_without_a_sandbox_the_attacks_succeed_and_the_report_says_so(no_packages: None) -> None:
    # Which is also why their failing under a level means that it contains them.
    result = doctor("--sandbox", "off", "--json")
    assert result.exit_code == 1
    sandbox = json.loads(result.stdout)["sandbox"]
    done = {attack for attack, outcome in sandbox["self_test"]["attacks"].items() if not outcome["contained"]}
    assert done == set(selftest.ATTACKS) - {"fill the memory", "run forever"}
    assert not sandbox["self_test"]["passed"]
    assert sandbox["self_test"]["benign_ran"]


def test_the_self_test_leaves_the_environment_and_the_temporary_folder_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftest.tempfile, "tempdir", str(tmp_path))
    before = dict(os.environ)
    assert selftest.run_selftest().passed
    assert dict(os.environ) == before
    assert not list(tmp_path.iterdir())


def test_a_program_that_does_not_start_is_not_taken_for_contained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "ATTACKS", {"attack": "os.fork()"})
    monkeypatch.setattr(selftest, "_HEAD", "import no_such_module\nprint('started')\n")
    (outcome,) = selftest.run_selftest().outcomes
    assert not outcome.contained
    assert "did not start" in outcome.how


def test_a_mark_counts_whatever_the_program_says(monkeypatch: pytest.MonkeyPatch) -> None:
    write = "open(canary['folder'] + '/written', 'w').close()\nraise PermissionError('no, no')"
    monkeypatch.setattr(selftest, "ATTACKS", {"write a file": write})
    (outcome,) = selftest.run_selftest("off").outcomes
    assert outcome == Attempt("write a file", False, "the file was written")


def test_a_machine_without_a_sandbox_is_bad_and_names_the_way_out(
    no_packages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    result = doctor()
    assert result.exit_code == 1
    assert "cannot isolate programs on riscv64" in " ".join(result.stdout.split())
    assert "-> use Linux on x86_64 or aarch64" in result.stdout
    assert result.stdout.rstrip().endswith("checks failed (bad). Follow the arrows (->).")


def test_a_sandbox_that_does_not_start_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> SelfTest:
        raise SceError("cannot start the sandbox: prctl: Operation not permitted")

    monkeypatch.setattr(isolation, "run_selftest", refuse)
    section = isolation.examine_sandbox()
    assert only(section, "self-test").state == "bad"
    assert section.facts["error"] == "cannot start the sandbox: prctl: Operation not permitted"


def test_a_layer_that_the_worker_does_not_have_is_bad() -> None:
    status = {"Seccomp": "0", "NoNewPrivs": "1", "CapEff": "0000000000000000"}
    states = {name: state for name, state, _ in isolation._layers("full", status)}
    assert states["seccomp"] == "bad"
    assert states["no new privileges"] == states["capabilities"] == "ok"


def test_what_leaks_is_named_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    leaky = SelfTest("macos", True, (Attempt("start a process", False, "the attack succeeded"),), {})
    monkeypatch.setattr(isolation, "run_selftest", lambda _: leaky)
    section = isolation.examine_sandbox()
    assert only(section, "start a process").found == "NOT contained (the attack succeeded)"
    assert only(section, "self-test").state == "bad"
    assert "do not run generated programs" in only(section, "self-test").next_step


def test_it_works_without_torch_llama_cpp_and_gguf(no_packages: None, no_selftest: None) -> None:
    result = doctor("--json")
    record = json.loads(result.stdout)
    assert result.exit_code == 0
    assert record["llama_cpp"] == {"installed": False}
    assert record["torch"] == {"installed": False}
    steps = {finding["group"]: finding["next_step"] for finding in record["findings"] if finding["state"] == "missing"}
    assert steps["torch"] == "pip install -c constraints.txt -e '.[train]'"
    assert steps["llama_cpp"].startswith("pip install -c constraints.txt -e '.[gguf]'")


def test_extras_and_python_are_those_of_pyproject() -> None:
    declared = {"base": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
    found = {name: [(each.name, each.specifier) for each in asked] for name, asked in extras.requirements().items()}
    assert found == {
        name: [(each.name, each.specifier) for each in map(Requirement, asked)]
        for name, asked in declared.items()
        if name not in ("all", "laptop")
    }
    assert PROJECT["requires-python"] == ">=" + ".".join(map(str, host.OLDEST_PYTHON))


def test_a_folder_that_was_never_installed_says_that_extras_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "PROJECT", "a-project-that-is-not-there")
    assert only(extras.examine_extras(), "base").state == "note"


def test_a_missing_extra_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "peft":
            raise importlib.metadata.PackageNotFoundError(name)
        return "99.0"

    monkeypatch.setattr(machine, "version", version)
    finding = only(extras.examine_extras(), "train")
    assert finding.state == "missing"
    assert "peft is missing" in finding.found
    assert finding.next_step == "pip install -c constraints.txt -e '.[train]'"


@pytest.mark.parametrize(
    ("installed", "requirement", "fits"),
    [
        ("2.13.0+cpu", "torch>=2.6", True),
        ("2.5.1", "torch>=2.6", False),
        ("2.6.0rc1", "torch>=2.6", True),
        ("0.3.36", "llama-cpp-python>=0.3.36,<0.4", True),
        ("0.3.9", "llama-cpp-python>=0.3.36,<0.4", False),
        ("0.4.0", "llama-cpp-python>=0.3.36,<0.4", False),
        ("5", "transformers>=5.0", True),
        ("0.3.36-of-mine", "llama-cpp-python>=0.3.36", False),
    ],
)
def test_versions_are_compared_as_numbers(installed: str, requirement: str, fits: bool) -> None:
    assert extras.satisfies(installed, Requirement(requirement)) is fits


def test_a_version_that_the_project_does_not_ask_for_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "version", lambda name: "0.4.1" if name == "llama-cpp-python" else "99.0")
    finding = only(extras.examine_extras(), "gguf")
    assert finding.state == "note"
    assert "llama-cpp-python<0.4,>=0.3.36" in finding.found


@needs("llama_cpp", "gguf")
def test_a_child_that_dies_of_a_signal_is_a_finding(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    body = """
write_message(answers, {"version": "0.3.36", "system_info": "CPU : AVX2 = 1 | AMX_INT8 = 1 | ", "sound_repacking": %s})
if request["extra_buffers"]: os.kill(os.getpid(), signal.SIGSEGV)
write_message(answers, {"batch_error": 0.0, "float_error": 0.01})
"""
    monkeypatch.setattr(kernels, "WORKER", worker(body % "False"))
    guarded = kernels.examine_llama_cpp()
    assert [only(guarded, f"{quant} kernels").state for quant in kernels.QUANTS] == ["note", "note"]
    assert only(guarded, "q8_0 kernels").found == (
        "stock kernels crash (signal SIGSEGV) on this CPU; sce loads models with use_extra_bufts = False, which works"
    )
    assert guarded.facts["features"] == ["AVX2", "AMX_INT8"]
    monkeypatch.setattr(kernels, "WORKER", worker(body % "True"))
    assert only(kernels.examine_llama_cpp(), "q4_0 kernels").state == "bad"


@needs("llama_cpp")
def test_an_import_of_llama_cpp_that_breaks_is_bad(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "WORKER", worker("raise OSError('libgomp.so.1: cannot open')"))
    finding = only(kernels.examine_llama_cpp(), "llama.cpp")
    assert finding.state == "bad"
    assert "libgomp.so.1: cannot open" in finding.found


@pytest.mark.parametrize(
    ("stock", "plain", "used", "state"),
    [
        (WORKS, WORKS, "stock", "ok"),
        (WORKS, WORKS, "plain", "ok"),
        (CRASHES, WORKS, "plain", "note"),
        (CRASHES, WORKS, "stock", "bad"),
        (WORKS, CRASHES, "plain", "bad"),
        (WORKS, CRASHES, "stock", "note"),
        (CRASHES, CRASHES, "plain", "bad"),
    ],
)
def test_kernels_are_bad_when_those_that_sce_uses_do_not_work(
    stock: dict[str, Any], plain: dict[str, Any], used: str, state: str
) -> None:
    assert kernels.judge({"stock": stock, "plain": plain}, used)[0] == state


@pytest.mark.parametrize(("batch", "exact"), [(0.5, 0.01), (0.0, 0.5), (1e30, 1e30)])
def test_kernels_with_wrong_results_do_not_work(batch: float, exact: float) -> None:
    result = kernels._result(processes.Answers([{}, {"batch_error": batch, "float_error": exact}]))
    assert not result["works"]
    assert "compute wrong results" in kernels.judge({"stock": result, "plain": WORKS}, "stock")[1]


def test_a_child_that_never_ends_is_ended_and_what_it_said_is_kept(worker: Any) -> None:
    module = worker('write_message(answers, {"said": 1})\nsignal.pause()')
    answers = processes.ask(module, {}, seconds=3)
    assert answers.messages == [{"said": 1}]
    assert answers.death == "no end within 3 s"


def test_how_a_child_ended_is_reported_with_its_last_words(worker: Any) -> None:
    dead = processes.ask(worker("os.kill(os.getpid(), signal.SIGKILL)"), {})
    assert dead.crash_report() == "failed with signal SIGKILL: no message"
    broken = processes.ask(worker("raise ValueError('no such thing')"), {})
    assert broken.crash_report() == "failed with an error: ValueError: no such thing"
    mute = processes.ask(worker("os.write(2, b'I leave')"), {})
    assert (mute.messages, mute.death, mute.crash_report()) == ([], "", "failed with an error: I leave")


def test_another_allocator_is_seen(tmp_path: Path) -> None:
    before = heap.uses_glibc_malloc()
    library = tmp_path / "libjemalloc.so.2"
    library.write_bytes(bytes(mmap.PAGESIZE))
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        assert not heap.uses_glibc_malloc()
    assert heap.uses_glibc_malloc() == before


@needs("torch")
def test_a_broken_torch_is_bad(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_facts, "WORKER", worker("os.abort()"))
    finding = only(torch_facts.examine_torch(), "torch")
    assert finding.state == "bad"
    assert "SIGABRT" in finding.found


def test_a_v100_under_cuda_13_has_no_kernels_and_is_sent_to_the_wheels_that_have() -> None:
    findings = torch_facts.judge_gpu(V100, ["sm_75", "sm_80", "sm_90", "compute_120"], "CUDA 13.0")
    assert [state for state, *_ in findings] == ["bad", "note", "note"]
    assert "no kernels" in findings[0][1]
    assert "cu126" in findings[0][2]
    assert "no bfloat16" in findings[1][1]
    assert "compute capability 7.5" in findings[2][1]


def test_what_a_gpu_can_compute_in_is_named() -> None:
    (volta, *_) = torch_facts.judge_gpu(V100, ["sm_70"], "CUDA 12.6")
    assert "(15.0 GiB free)" in volta[1]
    assert "supports --base-precision int8, fp16, fp32 and 8-bit optimizers" in volta[1]
    (ampere, *_) = torch_facts.judge_gpu(V100 | {"capability": [8, 0]}, ["sm_80"], "CUDA 12.6")
    assert "int8-bnb, bf16" in ampere[1]


def test_whether_the_recipe_of_the_device_fits_is_said() -> None:
    state, found, step = torch_facts.judge_recipe("paper-v100", "cuda", 16 << 30)
    assert (state, step) == ("ok", "")
    assert re.fullmatch(r"paper-v100: estimated peak \d+\.\d GiB of 16\.0 GiB", found)
    state, _, step = torch_facts.judge_recipe("paper-v100", "cuda", 4 << 30)
    assert state == "note"
    assert "--dry-run" in step
    assert torch_facts.judge_recipe("starter", "cpu", 8 << 30)[0] == "ok"


@pytest.mark.parametrize(
    ("capability", "architectures", "states"),
    [
        ([7, 0], ["sm_60", "sm_70", "sm_80"], ["ok", "note", "note"]),
        ([7, 5], ["sm_75", "sm_80"], ["ok", "note"]),
        ([8, 9], ["sm_80", "sm_90"], ["ok"]),
        ([9, 0], ["sm_80", "sm_90a"], ["ok"]),
        ([9, 0], ["sm_80", "compute_80"], ["ok"]),
        ([12, 0], ["sm_80", "sm_90"], ["bad"]),
        ([8, 0], ["sm_86"], ["bad"]),
    ],
)
def test_a_gpu_runs_binaries_of_its_major_version_and_ptx_of_any_earlier_one(
    capability: list[int], architectures: list[str], states: list[str]
) -> None:
    gpu = {"name": "GPU", "capability": capability, "memory_bytes": 1 << 30, "free_bytes": 1 << 29}
    assert [state for state, *_ in torch_facts.judge_gpu(gpu, architectures, "CUDA 12.6")] == states


def test_why_a_cuda_build_sees_no_gpu_is_said() -> None:
    def init() -> None:
        raise RuntimeError("Found no NVIDIA driver on your system.\nPlease check ...")

    torch = SimpleNamespace(cuda=SimpleNamespace(init=init))
    assert torch_worker._gpus(torch) == {"gpus": [], "why_none": "Found no NVIDIA driver on your system."}


def test_a_machine_whose_cores_others_use_gets_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {**host.describe_machine(), "load_average": [99.0, 1.0, 1.0]}
    monkeypatch.setattr(host, "describe_machine", lambda: facts)
    assert only(host.examine_host(), "load").state == "note"


def test_one_core_and_one_program_are_no_plural(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {**host.describe_machine(), "cores": 1}
    monkeypatch.setattr(host, "describe_machine", lambda: facts)
    monkeypatch.setattr(host, "default_workers", lambda limits: 1)
    monkeypatch.setattr(host, "available_memory_bytes", lambda: 1 << 40)
    section = host.examine_host()
    assert ", 1 usable core, " in only(section, "processor").found
    assert only(section, "memory").found.endswith("enough to test 1 program at a time")


def test_the_report_is_aligned_and_what_others_wrote_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = [
        Check("torch", "build", "ok", "1.0"),
        Check("torch", "a GPU", "bad", "evil \x1b]0;x\x07", "replace it"),
    ]
    monkeypatch.setattr("securecoderl_edge.doctor.examine", lambda _: Report({"torch": Section("torch", {}, findings)}))
    result = doctor()
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "torch",
        "  ok       build  1.0",
        "  bad      a GPU  evil \\x1b]0;x\\x07",
        "                  -> replace it",
        "",
        "1 of 2 checks failed (bad). Follow the arrows (->).",
    ]
