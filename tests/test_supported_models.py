"""Each cell of the table of families: a small random model of that family through the commands of a user."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from cli_runs import run_sce
from once import Once
from other_models import MODELS as OTHERS
from other_models import build_other
from small_runs import EPOCHS, varied_reward, write_additions
from supported_models import COLUMNS, MODELS, PAGE, REFUSED, with_table
from tiny_families import build_family

from securecoderl_edge.config import read_toml
from securecoderl_edge.models.architecture import read_architecture
from securecoderl_edge.models.families import FAMILIES, GELU

_OTHER = "StarCoder2"


@pytest.fixture(scope="session")
def trained(once: Once) -> Callable[[str], Path]:
    """A run of a few updates on a model of the row."""

    def make(row: str) -> Path:
        def run(folder: Path) -> None:
            problems = write_additions(folder.parent / f"{row}.jsonl")
            if row == "other":
                base = once(f"other-{_OTHER}", lambda made: build_other(made, _OTHER))
                targets = OTHERS[_OTHER][2]
            else:
                base = once(f"family-{row}", lambda made: build_family(made, row))
                targets = tuple(sorted({name.split(".")[1] for name in read_architecture(base).linears()}))
            words = [word for setting in EPOCHS for word in ("--set", setting)]
            words += ["--set", f"lora.targets={json.dumps(list(targets))}", "--phases", "sft,partial", "--seed", "1"]
            words += ["--set", "sft.learning_rate=0.003", "--device", "cpu"]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("securecoderl_edge.training.update.rollout.training_reward", varied_reward)
                succeed(
                    "train",
                    "--recipe",
                    "starter",
                    "--model",
                    str(base),
                    "--problems",
                    str(problems),
                    *words,
                    "--out",
                    str(folder),
                )

        return once(f"run-{row}", run)

    return make


def succeed(*words: str) -> str:
    code, shown, told = run_sce(*words)
    assert code == 0, told
    return shown


def train(run: Path, _: Path) -> None:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    ratios = [row["val/first_ratio_error"] for row in rows if "val/first_ratio_error" in row]
    assert {row["phase"] for row in rows} == {"sft", "partial"}
    assert ratios
    assert max(ratios) < 1e-3, "the policy that is trained is not the one that was evaluated"
    assert list((run / "policy").glob("*.safetensors"))


def bench(run: Path, _: Path) -> None:
    shown = succeed("bench", str(run), "--limit", "2", "--max-tokens", "8", "--threads", "1", "--json")
    assert len(json.loads(shown)["models"]) == 1


def generate(run: Path, _: Path) -> None:
    words = ("generate", "Print 1.", "--model", str(run), "--max-tokens", "8", "--temperature", "0", "--raw")
    code, _shown, told = run_sce(*words)
    assert code in (0, 1), told  # a random model's program fails its checks
    assert "Traceback" not in told


def gguf(run: Path, folder: Path) -> None:
    pytest.importorskip("llama_cpp", reason="needs the gguf extra")
    shown = succeed("export", str(run), "--format", "gguf", "--quant", "f32", "--out", str(folder / "m.gguf"), "--json")
    agreement = json.loads(shown)["agreement"]
    shape = read_architecture(Path(read_toml(run / "config.toml")["model"]))
    # llama.cpp takes GELU from a table in f16.
    assert agreement["max_abs_difference"] < (0.02 if shape.kind.activation == GELU else 1e-3)
    assert agreement["mean_kl"] < 1e-6


def onnx(run: Path, folder: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs the onnx extra")
    shown = succeed("export", str(run), "--format", "onnx", "--quant", "f32", "--out", str(folder / "m"), "--json")
    assert json.loads(shown)["agreement"]["max_abs_difference"] < 1e-3


CHECKS: dict[str, Callable[[Path, Path], None]] = {
    "train": train, "bench": bench, "generate": generate, "gguf": gguf, "onnx": onnx,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("row", MODELS)
def test_a_cell_of_the_table_of_families(row: str, column: str, trained: Callable[[str], Path], tmp_path: Path) -> None:
    run = trained(row)
    if (row, column) in REFUSED:
        code, _, told = run_sce("export", str(run), "--format", column)
        assert code == 2
        assert "Export it with --format hf" in " ".join(told.split())
    else:
        CHECKS[column](run, tmp_path)


def test_every_class_that_is_computed_natively_is_a_row(once: Once) -> None:
    found = set()
    for row in MODELS:
        if row != "other":
            folder = once(f"family-{row}", lambda made, row=row: build_family(made, row))  # type: ignore[misc]
            found |= set(json.loads((folder / "config.json").read_text())["architectures"])
    assert found == set(FAMILIES)


def test_the_page_has_the_table_of_these_tests() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page), "run: python tests/supported_models.py"
