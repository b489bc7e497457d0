"""`sce export`: several types at once, cards, checking again, and the quantization report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("llama_cpp", reason="needs the gguf extra")

from export_runs import folder, names, run
from fake_runtime import problem

from securecoderl_edge.export import workbench
from securecoderl_edge.export.card import _held_out, _training, license_of
from securecoderl_edge.models.gguf.header import header_strings, is_adapter, read_header
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.runs import Run
from securecoderl_edge.runtimes.spec import default_models, resolve_model

__all__ = ["folder"]  # a fixture
pytestmark = pytest.mark.usefixtures("known_references")


def test_several_types_are_exported_at_once_with_their_sidecar_files(folder: Path) -> None:
    code, out, err = run("--quant", "f16,q4_k_m", "--json")
    assert code == 0, err
    exports = folder / "runs" / "mine" / "exports"
    stems = ("mine-f16", "mine-q4_k_m")
    assert names(exports) == {
        name for stem in stems
        for name in (f"{stem}.gguf{end}" for end in ("", ".manifest.json", ".card.md", ".Modelfile"))
    }  # fmt: skip
    assert [manifest["quant"] for manifest in json.loads(out)] == ["f16", "q4_k_m"]
    assert "float file to quantize" not in err  # the one that was exported is quantized
    assert [spec.label for spec in default_models()][-2:] == ["mine-f16", "mine-q4_k_m"]


def test_the_base_of_a_run_is_exported_next_to_its_policy(folder: Path) -> None:
    code, _, err = run("mine:base", "--quant", "f16")
    assert code == 0, err
    assert "mine-base-f16.gguf" in names(folder / "runs" / "mine" / "exports")


def test_the_card_says_base_license_training_agreement_and_limits(folder: Path) -> None:
    assert run("--quant", "q8_0")[0] == 0
    exports = folder / "runs" / "mine" / "exports"
    card = (exports / "mine-q8_0.gguf.card.md").read_text()
    manifest = json.loads((exports / "mine-q8_0.gguf.manifest.json").read_text())
    assert card.startswith("---\nlibrary_name: gguf\n")
    for expected in (
        "license: apache-2.0",
        manifest["sha256"],
        f"{manifest['bits_per_weight']:.2f} bits per weight",
        "Problems: mine.jsonl (sha256 ffffffffffffffff)",
        "sft: selected update 4 of 9; reward on 2 held-out problems 0.875 [0.750, 1.000] (95 % CI)",
        "Prompt style: paper",
        f"| top-1 agreement | {manifest['agreement']['top1']:.1%} | 80% |",
        "ollama create mine-q8_0",
        "## Limitations",
    ):
        assert expected in card
    modelfile = (exports / "mine-q8_0.gguf.Modelfile").read_text()
    assert '\nFROM ./mine-q8_0.gguf\nTEMPLATE """### Instruction:\n' in modelfile
    assert 'PARAMETER stop "### Instruction:"' in modelfile


@pytest.mark.parametrize(
    ("labels", "words"), [(["a", "b"], "problems 0.875"), (["a", "a"], "problems in 1 group 0.875")]
)
def test_the_held_out_reward_of_a_card_is_over_groups_of_problems(folder: Path, labels: list[str], words: str) -> None:
    """Two variants of one task are one observation, of which there is no interval."""
    run_folder = Run(folder / "runs" / "mine")
    (file,) = run_folder.path.glob("phases/*-sft/evaluations.jsonl")
    row = json.loads(file.read_text().splitlines()[-1])
    file.write_text(json.dumps({**row, "groups": labels}) + "\n")
    ((phase, facts),) = run_folder.outcomes()
    said = _held_out(run_folder, phase, facts)
    assert words in said
    assert ("95 % CI" in said) == (len(set(labels)) == 2)


def test_the_license_of_a_base_is_looked_up_in_its_folder(base: Path, tmp_path: Path) -> None:
    assert license_of(base) == "apache-2.0"
    (tmp_path / "LICENSE").write_text("\nMIT License\n\nCopyright\n")
    assert license_of(tmp_path) == "MIT License (see the LICENSE file of the base)"
    (tmp_path / "LICENSE").unlink()
    assert license_of(tmp_path).startswith("unknown")


def test_an_adapter_is_exported_alone_and_is_no_model(folder: Path) -> None:
    code, _, err = run("--format", "adapter")
    assert code == 0, err
    lora = folder / "runs" / "mine" / "exports" / "mine-lora-f16.gguf"
    assert is_adapter(lora)
    assert header_strings(lora)["adapter.type"] == "lora"
    assert all(spec.role != "export" for spec in default_models())
    assert "ADAPTER ./mine-lora-f16.gguf" in lora.with_name("mine-lora-f16.gguf.Modelfile").read_text()
    code, _, err = run("--verify", str(lora))
    assert (code, "agrees with the original" in err) == (0, True)
    from securecoderl_edge.errors import UsageError

    with pytest.raises(UsageError, match="a LoRA adapter, not a model"):
        resolve_model(str(lora))


def test_a_file_is_checked_again_against_manifest_and_source(folder: Path, base: Path) -> None:
    assert run("--quant", "f32")[0] == 0
    file = folder / "runs" / "mine" / "exports" / "mine-f32.gguf"
    code, out, _ = run("--verify", str(file), "--json")
    assert code == 0
    assert json.loads(out)["agreement"]["greedy_equal"] == 20
    moved = folder / "moved.gguf"
    shutil.copyfile(file, moved)
    shutil.copyfile(f"{file}.manifest.json", f"{moved}.manifest.json")
    code, _, err = run("--verify", str(moved))
    assert (code, "To compare it with the original" in err) == (0, True)
    code, _, err = run(str(base), "--verify", str(moved))
    assert (code, "was made from another model: adapter/" in err) == (1, True)
    content = bytearray(moved.read_bytes())
    content[-9] ^= 1
    moved.write_bytes(content)
    code, _, err = run("--verify", str(moved))
    assert (code, "has changed since its export" in err) == (1, True)
    assert run("--verify", "nowhere.gguf")[0] == 2
    Path("bare.gguf").write_bytes(content)
    code, _, err = run("--verify", "bare.gguf")
    assert (code, "manifest.json: no such file" in err) == (2, True)


def test_the_quantization_report_is_one_table_with_paired_intervals(folder: Path) -> None:
    write_problems(Path("few.jsonl"), [problem(number) for number in range(4)])
    code, out, err = run("--quant", "f32,q8_0", "--bench", "--problems", "few.jsonl")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("f32 ")
    assert any(line.startswith("q8_0 ") and "KL" in line and "bits" in line for line in lines)
    assert lines[-1] == "Differences from mine-f32, paired over 4 problems in 1 group, with 95 % intervals."
    assert "not distinguishable" in out
    assert "| q8_0 |" in (folder / "runs" / "mine" / "exports" / "mine-q8_0.gguf.card.md").read_text()


def test_one_type_that_fails_does_not_cost_the_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def garble(source: Path, target: Path, kind: str, *_: object) -> None:
        content = bytearray(source.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 100_000] = bytes(range(100)) * 1000
        target.write_bytes(content)

    monkeypatch.setattr(workbench, "quantize", garble)
    code, _, err = run("--quant", "f16,q4_0")
    assert code == 1
    assert "1 of 2 files were not written" in err
    exports = folder / "runs" / "mine" / "exports"
    assert {"mine-f16.gguf", "mine-f16.gguf.card.md"} <= names(exports)
    assert not (exports / "mine-q4_0.gguf").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--format", "adapter", "--quant", "q8_0"), "does not support --quant q8_0; choose from f16, f32"),
        (("--format", "hf", "--quant", "q8_0"), "does not support --quant q8_0; choose from f32, f16"),
        (("--quant", "f16,q8_0", "--out", "x.gguf"), "--out is one file"),
        (("--format", "hf", "--bench"), "--bench needs --format gguf or onnx"),
        (("nano", "--format", "adapter"), "is a base model without an adapter"),
        (("--quant", "q9"), "'q9' is not one of"),
        (("--quant", "q8-0"), "Did you mean q8_0?"),
    ],
)
def test_what_cannot_be_is_a_usage_error(folder: Path, arguments: tuple[str, ...], words: str) -> None:
    code, _, err = run(*arguments)
    assert (code, words in err) == (2, True), err


def test_a_header_that_is_none_has_no_texts(tmp_path: Path) -> None:
    for content in (b"", b"GGUF", b"GGUF" + b"\xff" * 40, b"nothing"):
        (tmp_path / "x.gguf").write_bytes(content)
        assert header_strings(tmp_path / "x.gguf") == {}
        assert not is_adapter(tmp_path / "x.gguf")


def test_a_file_with_another_pre_tokenizer_is_another_export(base: Path, folder: Path) -> None:
    assert run(str(base))[0] == 0
    (file,) = folder.glob("*.gguf")
    right = read_header(file).values["tokenizer.ggml.pre"]
    assert "reused, the same export already exists" in run(str(base), "--pre-tokenizer", str(right))[2]
    code, _, err = run(str(base), "--pre-tokenizer", "foo")
    assert (code, "exists and is another export" in err) == (2, True), err
    code, _, err = run(str(base), "--pre-tokenizer", "foo", "--out", "other.gguf")
    assert (code, "with --pre-tokenizer" in err, (folder / "other.gguf").exists()) == (1, True, False), err


def test_what_comes_next_names_a_file_that_would_not_be_found(base: Path, folder: Path) -> None:
    assert f"next: sce bench {base.name}-q8_0.gguf, or" in run(str(base))[2]
    assert "next: sce bench, or" in run()[2]
    assert "next: sce bench 'a b.gguf', or" in run("--out", "a b.gguf")[2]


def test_problems_that_there_are_not_are_said_before_anything_is_exported(base: Path, folder: Path) -> None:
    before = names(folder)
    code, _, err = run(str(base), "--bench", "--problems", "nope.jsonl")
    assert (code, "nope.jsonl: no such file" in err, names(folder)) == (2, True, before), err


def test_a_run_without_its_record_is_exported_with_a_card_that_says_so(folder: Path) -> None:
    (folder / "runs" / "mine" / "config.toml").unlink()
    code, _, err = run("--quant", "f32")
    assert code == 0, err
    card = folder / "runs" / "mine" / "exports" / "mine-f32.gguf.card.md"
    assert "training record is missing" in card.read_text()


@pytest.mark.parametrize("damage", ["phases = 5", "phases = [5]"])
def test_a_record_of_something_else_counts_as_damaged(folder: Path, damage: str) -> None:
    (folder / "runs" / "mine" / "config.toml").write_text(damage)
    assert "damaged" in " ".join(_training(Run(folder / "runs" / "mine")))


@pytest.mark.parametrize(
    "arguments", [("--verify", "x.gguf", "--force"), ("--verify", "x.gguf", "--quant", "f16"),
                  ("--pre-tokenizer", "qwen2", "--format", "onnx"), ("--problems", "nonsense"), ("--limit", "3")],
)  # fmt: skip
def test_flags_that_do_nothing_are_refused(folder: Path, arguments: tuple[str, ...]) -> None:
    assert run(*arguments)[0] == 2
