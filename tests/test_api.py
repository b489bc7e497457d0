"""The Python interface: its page of examples, and what it refuses."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from securecoderl_edge import api
from securecoderl_edge.errors import UsageError

PAGE = ROOT / "docs" / "reference" / "api.md"


@pytest.mark.slow
def test_the_examples_of_the_page_are_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("llama_cpp")
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.FAIL_FAST)
    assert tried > 10
    assert failed == 0


def test_importing_it_loads_nothing_heavy() -> None:
    heavy = "{'torch', 'transformers', 'llama_cpp', 'onnxruntime', 'bandit', 'click', 'numpy'}"
    code = f"import sys, securecoderl_edge.api; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize("name", api.__all__)
def test_every_function_says_what_it_returns_and_raises(name: str) -> None:
    text = inspect.getdoc(getattr(api, name))
    assert text is not None
    assert "Raises:" in text


def test_a_precision_that_a_file_cannot_have_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(UsageError, match="--base-precision has no effect on GGUF and ONNX files"):
        api.bench([str(tmp_path / "m.gguf")], base_precision="int8")


@pytest.mark.parametrize(
    "call",
    [
        lambda: api.bench(["nano"], samples=0),
        lambda: api.bench(["nano"], colour="red"),
        lambda: api.bench(["no-such-model"]),
        lambda: api.generate("Print 1.", "nano", temperature=-1.0),
        lambda: api.generate("Print 1.", "nano", language="rust"),
        lambda: api.export("nano", kind="exe"),
        lambda: api.export("nano", quant="q99"),
        lambda: api.train(out="run", phases=("sleep",)),
    ],
)
def test_what_cannot_be_done_is_a_usage_error(call: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="needs the train extra")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        call()  # type: ignore[operator]
    assert list(tmp_path.iterdir()) == []


def test_a_bench_of_one_model_takes_its_name_alone() -> None:
    with pytest.raises(UsageError, match="no-such-model"):
        api.bench("no-such-model")


def test_programs_in_c_are_generated_and_compiled(c_compiler: None) -> None:
    pytest.importorskip("torch", reason="needs the train extra")
    found = api.generate("Print 1.", "nano", language="c", max_tokens=8, seed=1)
    assert found.problem.language == "c"
    assert found.best.verdict() == "does not compile"
