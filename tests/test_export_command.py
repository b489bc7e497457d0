"""`sce export`: several types at once, cards, checking again, and what quantisation costs."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import build_adapter, build_model

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("llama_cpp", reason="needs the gguf extra")

from fake_runtime import problem

from securecoderl_edge.cli import main
from securecoderl_edge.export import run as export_run
from securecoderl_edge.export import workbench
from securecoderl_edge.export.card import licence_of
from securecoderl_edge.export.manifest import Manifest
from securecoderl_edge.files import remove_abandoned, sha256_of
from securecoderl_edge.gguf_header import header_strings, is_adapter
from securecoderl_edge.manifests import manifest_path
from securecoderl_edge.models import default_models, resolve_model
from securecoderl_edge.problems import write_problems
from securecoderl_edge.runs import Run, mark_latest

Exported = Callable[[str, Path], None]


def run(*args: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``sce export``."""
    with CliRunner().isolation() as (out, err, _):
        try:
            main(["export", *args])
            code = 0
        except SystemExit as leave:
            code = int(leave.code or 0)
        return code, out.getvalue().decode(), err.getvalue().decode()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4}
    folder = build_model(tmp_path_factory.mktemp("model") / "mine", initializer_range=0.1, **sizes)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\ntags: [x]\n---\n# Mine\n")
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: Path) -> Path:
    """A working folder with a run that has a policy and two evaluations of its only phase."""
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "runs" / "mine"
    build_adapter(made / "policy", base)
    (made / "environment.json").write_text(
        json.dumps({"base_model": str(base), "problems_sha256": "f" * 64, "machine": {"cpu": "A processor"}})
    )
    (made / "config.toml").write_text(
        'problems = "mine.jsonl"\nphases = ["sft"]\nseed = 7\n[prompt]\nstyle = "paper"\n[selection]\nsamples = 2\n'
    )
    phase = made / "phases" / "1-sft"
    shutil.copytree(made / "policy", phase / "adapter")
    (phase / "adapter" / "done.json").write_text(json.dumps({"chosen_step": 4, "steps": 9}))
    rows = [{"phase": "sft", "step": step, "rewards": [0.5, 1.0, 1.0, 1.0]} for step in (0, 4)]
    (phase / "evaluations.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    mark_latest(Run(Path("runs/mine")))
    return tmp_path


@pytest.fixture(scope="module")
def exported(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Puts an export of `base` in a type, with its manifest, into a folder as m.gguf; each type is made once."""
    made = tmp_path_factory.mktemp("exported")

    def put(quant: str, folder: Path) -> None:
        (made / quant).mkdir(exist_ok=True)
        if not (made / quant / "m.gguf").is_file():
            export_run.export_gguf(base, None, quant, made / quant / "m.gguf", force=False)
        for path in (made / quant).iterdir():
            shutil.copyfile(path, folder / path.name)

    return put


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_several_types_are_exported_at_once_with_their_papers(folder: Path) -> None:
    code, out, err = run("--quant", "f16,q4_k_m", "--json")
    assert code == 0, err
    exports = folder / "runs" / "mine" / "exports"
    stems = ("mine-f16", "mine-q4_k_m")
    assert names(exports) == {
        name for stem in stems
        for name in (f"{stem}.gguf{end}" for end in ("", ".manifest.json", ".card.md", ".Modelfile"))
    }  # fmt: skip
    assert [manifest["quant"] for manifest in json.loads(out)] == ["f16", "q4_k_m"]
    assert "the float file" not in err  # the one that was exported is quantised
    assert [spec.label for spec in default_models()][-2:] == ["mine-f16", "mine-q4_k_m"]


def test_the_card_says_base_licence_training_agreement_and_limits(folder: Path) -> None:
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
        "sft: kept update 4 of 9; reward on 2 held-out problems 0.875 [0.750, 1.000] (95 %)",
        "Prompt style: paper",
        f"| the same token preferred | {manifest['agreement']['top1']:.1%} | 80% |",
        "ollama create mine-q8_0",
        "## Limits",
    ):
        assert expected in card
    modelfile = (exports / "mine-q8_0.gguf.Modelfile").read_text()
    assert '\nFROM ./mine-q8_0.gguf\nTEMPLATE """### Instruction:\n' in modelfile
    assert 'PARAMETER stop "### Instruction:"' in modelfile


def test_the_licence_of_a_base_is_looked_up_in_its_folder(base: Path, tmp_path: Path) -> None:
    assert licence_of(base) == "apache-2.0"
    (tmp_path / "LICENSE").write_text("\nMIT License\n\nCopyright\n")
    assert licence_of(tmp_path) == "MIT License (see the LICENSE file of the base)"
    (tmp_path / "LICENSE").unlink()
    assert licence_of(tmp_path).startswith("not stated")


def test_an_adapter_is_exported_alone_and_is_no_model(folder: Path) -> None:
    code, _, err = run("--format", "adapter")
    assert code == 0, err
    lora = folder / "runs" / "mine" / "exports" / "mine-lora-f16.gguf"
    assert is_adapter(lora)
    assert header_strings(lora)["adapter.type"] == "lora"
    assert all(spec.role != "export" for spec in default_models())
    assert "ADAPTER ./mine-lora-f16.gguf" in lora.with_name("mine-lora-f16.gguf.Modelfile").read_text()
    code, _, err = run("--verify", str(lora))
    assert (code, "agrees with its source" in err) == (0, True)
    from securecoderl_edge.errors import UsageError

    with pytest.raises(UsageError, match="is a LoRA adapter, no model"):
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
    assert (code, "name its source" in err) == (0, True)
    code, _, err = run(str(base), "--verify", str(moved))
    assert (code, "was made from something else: adapter/" in err) == (1, True)
    content = bytearray(moved.read_bytes())
    content[-9] ^= 1
    moved.write_bytes(content)
    code, _, err = run("--verify", str(moved))
    assert (code, "is not what was exported" in err) == (1, True)
    assert run("--verify", "nowhere.gguf")[0] == 2
    Path("bare.gguf").write_bytes(content)
    code, _, err = run("--verify", "bare.gguf")
    assert (code, "manifest.json: no such file" in err) == (2, True)


def test_what_quantisation_costs_is_one_table_with_paired_intervals(folder: Path) -> None:
    write_problems(Path("few.jsonl"), [problem(number) for number in range(4)])
    code, out, err = run("--quant", "f32,q8_0", "--bench", "--problems", "few.jsonl")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("f32 ")
    assert any(line.startswith("q8_0 ") and "KL" in line and "bits" in line for line in lines)
    assert lines[-1] == "Differences from mine-f32, paired over 4 problems, with 95 % intervals."
    assert "not distinguishable" in out
    assert "| q8_0 |" in (folder / "runs" / "mine" / "exports" / "mine-q8_0.gguf.card.md").read_text()


def test_one_type_that_fails_does_not_cost_the_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def garble(source: Path, target: Path, kind: str) -> None:
        content = bytearray(source.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 100_000] = bytes(range(100)) * 1000
        target.write_bytes(content)

    monkeypatch.setattr(workbench, "quantise", garble)
    code, _, err = run("--quant", "f16,q4_0")
    assert code == 1
    assert "1 of 2 files were not written" in err
    exports = folder / "runs" / "mine" / "exports"
    assert {"mine-f16.gguf", "mine-f16.gguf.card.md"} <= names(exports)
    assert not (exports / "mine-q4_0.gguf").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--format", "adapter", "--quant", "q8_0"), "is written as f16, f32, not q8_0"),
        (("--format", "hf", "--quant", "q8_0"), "is written as f32, f16, not q8_0"),
        (("--quant", "f16,q8_0", "--out", "x.gguf"), "--out names one file"),
        (("--format", "hf", "--bench"), "--bench measures whole models"),
        (("nano", "--format", "adapter"), "is a base model without an adapter"),
        (("--quant", "q9"), "'q9' is not one of"),
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


# kill -9


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("--quant", "f16"), "mine-f16.gguf"),
        (("--quant", "q4_k_m"), "mine-q4_k_m.gguf"),
        (("--format", "onnx"), "mine-onnx-int8"),
        (("--format", "hf"), "mine-hf"),
    ],
)
def test_a_killed_export_leaves_nothing_under_the_name_and_its_rest_goes_with_the_next(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], name: str
) -> None:
    if "onnx" in arguments:
        pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "securecoderl_edge", "export", str(base), *arguments]
    victim = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not (left := list(tmp_path.glob(".*.tmp-*"))) and victim.poll() is None:
            time.sleep(0.002)
        os.killpg(victim.pid, signal.SIGKILL)
    finally:
        victim.wait()
    assert left
    assert victim.returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == []
    left = list(tmp_path.glob(".*.tmp-*"))
    for path in [each for found in left for each in (found, *found.rglob("*"))]:
        os.utime(path, (0, 0))
    assert run(str(base), *arguments)[0] == 0
    assert (tmp_path / name).exists()
    assert list(tmp_path.glob(".*.tmp-*")) == []


def test_what_was_touched_lately_or_belongs_to_a_running_process_stays(tmp_path: Path) -> None:
    def leave(process: int, age: float) -> Path:
        path = tmp_path / f".a.gguf.tmp-{process}-0123abcd"
        path.write_bytes(b"x")
        os.utime(path, (time.time() - age,) * 2)
        return path

    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    running, old = leave(os.getpid(), 1e6), leave(gone.pid, 1e6)
    young = leave(gone.pid + 1, 5)
    other = tmp_path / f".b.gguf.tmp-{gone.pid}-0123abcd"
    other.write_bytes(b"x")
    os.utime(other, (0, 0))
    remove_abandoned(tmp_path / "a.gguf")
    assert [path.exists() for path in (running, old, young, other)] == [True, False, True, True]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--out", "mine.Modelfile"), "written beside an export"),
        (("--out", "mine.gguf.manifest.json"), "written beside an export"),
        (("--format", "hf", "--quant", "f32,f16"), "one --quant at a time"),
    ],
)
def test_an_export_never_writes_over_its_own_papers(folder: Path, arguments: tuple[str, ...], words: str) -> None:
    code, _, err = run(*arguments)
    assert (code, words in err) == (2, True), err


def test_printed_lines_lead_to_the_file_whatever_it_is_called(base: Path, folder: Path) -> None:
    for name in ("a b/it's-1.0.gguf", "a b/it's-1.5.gguf"):
        code, _, err = run(str(base), "--quant", "f16", "--out", name)
        assert code == 0, err
        words = [shlex.split(line) for line in err.splitlines() if line.startswith("    ")]
        assert [name in line for line in words] == [True, False, True]
        assert f"{name}.Modelfile" in words[1]
    assert {path.name for path in (folder / "a b").glob("*.Modelfile")} == {
        "it's-1.0.gguf.Modelfile",
        "it's-1.5.gguf.Modelfile",
    }


@pytest.mark.parametrize(
    "change",
    [
        {"quant": "q99"}, {"quant": ["f16"]}, {"sources": [1]}, {"sources": 3}, {"sources": {"base/x": 3}},
        {"bytes": None}, {"bytes": -1}, {"bytes": "x"}, {"bits_per_weight": float("nan")}, {"parameters": 10**400},
        {"tensor_types": {"f16": "many"}}, {"versions": []}, {"normaliser": 3}, {"file": "\ud800"},
        {"agreement": {}}, {"agreement": 3}, {"more": 1},
    ],
)  # fmt: skip
def test_a_manifest_that_is_none_is_a_sentence(
    base: Path, folder: Path, change: dict[str, object], exported: Exported
) -> None:
    exported("f16", folder)
    path = folder / "m.gguf.manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    code, _, err = run(str(base), "--verify", "m.gguf")
    assert (code, "is no manifest of an export" in err) == (1, True), err
    assert run(str(base), "--quant", "f16", "--out", "m.gguf")[0] == 2  # not taken for this export either
    path.write_text("[" * 200_000)
    assert run(str(base), "--verify", "m.gguf")[0] == 1


@pytest.mark.parametrize(
    "change", [{"mean_kl": 10**400}, {"top1": 2.0}, {"top1": float("nan")}, {"prompts": 1.5}, {"texts": True}]
)
def test_figures_that_cannot_be_are_a_damaged_manifest(
    base: Path, folder: Path, change: dict[str, object], exported: Exported
) -> None:
    exported("f16", folder)
    record = json.loads(manifest_path(folder / "m.gguf").read_text())
    edit_manifest(folder / "m.gguf", agreement={**record["agreement"], **change})
    code, _, err = run("--verify", "m.gguf")
    assert (code, "is no manifest of an export" in err) == (1, True), err


@pytest.mark.parametrize(
    "change", [{"bytes": 5}, {"bits_per_weight": 4.0}, {"parameters": 7}, {"tokenizer_pre": "x"}, {"prompt_style": "x"}]
)
def test_what_the_manifest_says_of_the_file_is_held_against_the_file(
    base: Path, folder: Path, change: dict[str, object], exported: Exported
) -> None:
    exported("f16", folder)
    edit_manifest(folder / "m.gguf", **change)
    code, _, err = run("--verify", "m.gguf")
    assert (code, f"m.gguf has {next(iter(change))} = " in err) == (1, True), err


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_never_ends_is_not_read(base: Path, folder: Path, kind: str, exported: Exported) -> None:
    exported("f16", folder)
    (folder / "m.gguf").unlink()
    if kind == "pipe":
        os.mkfifo(folder / "m.gguf")
    else:
        (folder / "m.gguf").symlink_to("/dev/zero")
    code, _, err = run("--verify", "m.gguf")
    assert (code, "m.gguf: is no regular file" in err) == (1, True), err


def edit_manifest(file: Path, **changes: object) -> None:
    path = manifest_path(file)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(("quant", "said"), [("q8_0", "q3_k_m"), ("q4_k_m", "q4_k_s"), ("f16", "f32")])
def test_a_file_of_another_type_than_its_manifest_says_is_found_out(
    base: Path, folder: Path, quant: str, said: str, exported: Exported
) -> None:
    exported(quant, folder)
    edit_manifest(folder / "m.gguf", quant=said)
    code, _, err = run("--verify", "m.gguf")
    assert (code, f"m.gguf has quant = {quant}, and" in err, f"says quant = {said}" in err) == (1, True, True), err
    edit_manifest(folder / "m.gguf", quant=quant, tensor_types={"f32": 20})
    code, _, err = run("--verify", "m.gguf")
    assert (code, "m.gguf has tensor_types = " in err) == (1, True), err


def test_damage_that_the_bounds_permit_is_found_by_the_agreement_that_was_recorded(
    base: Path, folder: Path, exported: Exported
) -> None:
    exported("q8_0", folder)
    file, rng = folder / "m.gguf", random.Random(5)
    content = bytearray(file.read_bytes())
    for _ in range(400):
        content[rng.randrange(len(content) * 3 // 4, len(content))] ^= 0x10
    file.write_bytes(content)
    edit_manifest(file, sha256=sha256_of(file))
    code, _, err = run(str(base), "--verify", "m.gguf")
    assert (code, "agrees less with its source than when it was exported: KL is" in err) == (1, True), err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mean_kl", "KL is"),
        ("top1", "top-1 disagreement is"),
        ("max_abs_difference", "the largest difference of a logit"),
    ],
)
def test_each_figure_must_be_about_as_good_as_recorded(
    base: Path, folder: Path, name: str, words: str, exported: Exported
) -> None:
    exported("q4_0", folder)
    record = json.loads(manifest_path(folder / "m.gguf").read_text())["agreement"]
    edit_manifest(folder / "m.gguf", agreement={**record, name: 1.0 if name == "top1" else record[name] / 3})
    code, _, err = run(str(base), "--verify", "m.gguf")
    assert (code, f"when it was exported: {words}" in err, err.count(" and was ")) == (1, True, 1), err


def test_an_export_of_another_version_of_the_format_is_not_taken_for_this_one(
    base: Path, folder: Path, exported: Exported
) -> None:
    exported("f16", folder)
    edit_manifest(folder / "m.gguf", format_version=1)
    assert run(str(base), "--quant", "f16", "--out", "m.gguf")[0] == 2


@pytest.mark.parametrize("paper", ["m.gguf.card.md", "m.gguf.Modelfile"])
def test_a_paper_of_somebody_else_is_not_replaced(base: Path, folder: Path, paper: str) -> None:
    (folder / paper).write_text("mine")
    code, _, err = run(str(base), "--quant", "f32", "--out", "m.gguf")
    assert (code, f"{paper} is not of sce export" in err) == (2, True), err
    assert (folder / paper).read_text() == "mine"
    assert not (folder / "m.gguf").exists()
    assert run(str(base), "--quant", "f32", "--out", "m.gguf", "--force")[0] == 0
    assert (folder / paper).read_text() != "mine"
    # Its own papers it writes again.
    assert run(str(base), "--quant", "f32", "--out", "m.gguf")[0] == 0


def test_a_file_and_a_folder_of_one_name_have_each_its_card(base: Path, folder: Path) -> None:
    pytest.importorskip("onnxruntime")
    for arguments in (("--out", "m.gguf"), ("--out", "m"), ("--format", "onnx", "--out", "m.onnx")):
        assert run(str(base), *arguments)[0] == 0
    titles = [path.read_text().partition("---\n\n# ")[2].splitlines()[0] for path in
              (folder / "m.gguf.card.md", folder / "m.card.md", folder / "m.onnx" / "README.md")]  # fmt: skip
    assert titles == ["m.gguf", "m", "m.onnx"]
    assert run("--verify", "m.onnx")[0] == 0  # its card is no foreign file


def test_a_name_that_cannot_be_printed_is_refused(base: Path, folder: Path) -> None:
    code, _, err = run(str(base), "--out", "a\nb.gguf")
    assert (code, "choose another --out" in err) == (2, True), err


@pytest.mark.parametrize("kind", ["gguf", "onnx", "adapter", "hf"])
@pytest.mark.parametrize("name", ["a\nb", "", "new/..", "x" * 245])
def test_a_name_that_leads_nowhere_is_refused_before_anything_is_written(folder: Path, kind: str, name: str) -> None:
    before = names(folder)
    code, _, err = run("--format", kind, "--out", name)
    assert (code, "choose another --out" in err, names(folder)) == (2, True, before), err


def test_force_never_replaces_the_source(base: Path, folder: Path) -> None:
    shutil.copytree(base, folder / "src")
    (folder / "src" / "notes.txt").write_text("mine")
    weights = (folder / "src" / "model.safetensors").read_bytes()
    for arguments in (
        ("--out", "src/model.safetensors"),
        ("--format", "hf", "--out", "src"),
        ("--format", "onnx", "--out", "src"),
        ("--format", "hf", "--out", "."),
    ):
        code, _, err = run("src", *arguments, "--force")
        assert (code, "choose another --out" in err) == (2, True), err
    assert (folder / "src" / "model.safetensors").read_bytes() == weights
    assert (folder / "src" / "notes.txt").read_text() == "mine"
    assert run("src", "--quant", "f32", "--out", "src/new.gguf")[0] == 0  # a new file in that folder is fine


@pytest.mark.parametrize(("kind", "file"), [("hf", "README.md"), ("hf", "mine.txt"), ("onnx", "mine.txt")])
def test_force_never_deletes_files_that_no_export_wrote(base: Path, folder: Path, kind: str, file: str) -> None:
    assert run(str(base), "--format", kind, "--out", "out")[0] == 0
    (folder / "out" / file).write_text("mine")
    code, _, err = run(str(base), "--format", kind, "--out", "out", "--force")
    assert (code, file in err) == (2, True), err
    assert (folder / "out" / file).read_text() == "mine"


def test_a_card_in_a_folder_that_somebody_else_wrote_is_not_replaced(base: Path, folder: Path) -> None:
    assert run(str(base), "--format", "onnx", "--out", "m")[0] == 0
    assert run(str(base), "--format", "onnx", "--out", "m")[0] == 0  # ours is
    card = folder / "m" / "README.md"
    card.write_text("mine")
    assert run(str(base), "--format", "onnx", "--out", "m")[0] == 2
    (folder / "victim").write_text("mine")
    card.unlink()
    card.symlink_to(folder / "victim")
    assert run(str(base), "--format", "onnx", "--out", "m")[0] == 2
    assert (folder / "victim").read_text() == "mine"


def test_problems_that_there_are_not_are_said_before_anything_is_exported(base: Path, folder: Path) -> None:
    before = names(folder)
    code, _, err = run(str(base), "--bench", "--problems", "nope.jsonl")
    assert (code, "nope.jsonl: no such file" in err, names(folder)) == (2, True, before), err


def test_a_run_without_its_record_is_exported_with_a_card_that_says_so(folder: Path) -> None:
    (folder / "runs" / "mine" / "config.toml").unlink()
    code, _, err = run("--quant", "f32")
    assert code == 0, err
    card = folder / "runs" / "mine" / "exports" / "mine-f32.gguf.card.md"
    assert "record of its training is missing" in card.read_text()


@pytest.mark.parametrize(
    "arguments", [("--verify", "x.gguf", "--force"), ("--verify", "x.gguf", "--quant", "f16"),
                  ("--pre-tokenizer", "qwen2", "--format", "onnx")],
)  # fmt: skip
def test_flags_that_do_nothing_are_refused(folder: Path, arguments: tuple[str, ...]) -> None:
    assert run(*arguments)[0] == 2


def test_no_export_stands_without_its_manifest(base: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    def note(manifest: Manifest, out: Path) -> None:
        written.append(out.exists())
        raise KeyboardInterrupt

    monkeypatch.setattr(export_run, "_write_manifest", note)
    with pytest.raises(KeyboardInterrupt):
        export_run.export_gguf(base, None, "f32", folder / "m.gguf", force=False)
    assert written == [False]
    assert not (folder / "m.gguf").exists()
