"""A manifest is held against the file, and an export against its manifest; damage of either is found out."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from once import Once

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("llama_cpp", reason="needs the gguf extra")

from export_runs import make_run, run
from exports import export_gguf

from securecoderl_edge.export import run as export_run
from securecoderl_edge.export.manifest import Manifest
from securecoderl_edge.runtimes.manifests import manifest_path
from securecoderl_edge.system.files import sha256_of

Exported = Callable[[str, Path], None]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: Path) -> Path:
    """A working folder with a run that has a policy and two evaluations of its only phase."""
    monkeypatch.chdir(tmp_path)
    make_run(Path("runs/mine"), base)
    return tmp_path


@pytest.fixture(scope="session")
def exported(base: Path, once: Once) -> Exported:
    """Puts an export of `base` in a type, with its manifest, into a folder as m.gguf; each type is made once."""

    def put(quant: str, folder: Path) -> None:
        made = once(f"mine-{quant}", lambda new: export_gguf(base, None, quant, new / "m.gguf", force=False))
        for path in made.iterdir():
            shutil.copyfile(path, folder / path.name)

    return put


@pytest.mark.parametrize(
    "change",
    [
        {"quant": "q99"}, {"quant": ["f16"]}, {"sources": [1]}, {"sources": 3}, {"sources": {"base/x": 3}},
        {"bytes": None}, {"bytes": -1}, {"bytes": "x"}, {"bits_per_weight": float("nan")}, {"parameters": 10**400},
        {"tensor_types": {"f16": "many"}}, {"versions": []}, {"normalizer": 3}, {"file": "\ud800"},
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
    assert (code, "not an export manifest of this version" in err) == (1, True), err
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
    assert (code, "not an export manifest of this version" in err) == (1, True), err


@pytest.mark.parametrize(
    "change", [{"bytes": 5}, {"bits_per_weight": 4.0}, {"parameters": 7}, {"tokenizer_pre": "x"}, {"prompt_style": "x"}]
)
def test_what_the_manifest_says_of_the_file_is_held_against_the_file(
    base: Path, folder: Path, change: dict[str, object], exported: Exported
) -> None:
    exported("f16", folder)
    edit_manifest(folder / "m.gguf", **change)
    code, _, err = run("--verify", "m.gguf")
    assert (code, f"m.gguf: {next(iter(change))} is " in err) == (1, True), err


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_never_ends_is_not_read(base: Path, folder: Path, kind: str, exported: Exported) -> None:
    exported("f16", folder)
    (folder / "m.gguf").unlink()
    if kind == "pipe":
        os.mkfifo(folder / "m.gguf")
    else:
        (folder / "m.gguf").symlink_to("/dev/zero")
    code, _, err = run("--verify", "m.gguf")
    assert (code, "m.gguf: not a regular file" in err) == (1, True), err


def edit_manifest(file: Path, **changes: object) -> None:
    path = manifest_path(file)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("quant", "said"), [pytest.param("q8_0", "q3_k_m", marks=pytest.mark.slow), ("q4_k_m", "q4_k_s"), ("f16", "f32")]
)
def test_a_file_of_another_type_than_its_manifest_says_is_found_out(
    base: Path, folder: Path, quant: str, said: str, exported: Exported
) -> None:
    exported(quant, folder)
    edit_manifest(folder / "m.gguf", quant=said)
    code, _, err = run("--verify", "m.gguf")
    assert (code, f"m.gguf: quant is {quant}, but " in err, f"manifest.json has {said}. " in err) == (1, True, True), (
        err
    )
    edit_manifest(folder / "m.gguf", quant=quant, tensor_types={"f32": 20})
    code, _, err = run("--verify", "m.gguf")
    assert (code, "m.gguf: tensor_types is " in err) == (1, True), err


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
    assert (code, "agrees less with the original than when it was exported: KL is" in err) == (1, True), err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mean_kl", "KL is"),
        ("top1", "top-1 disagreement is"),
        ("max_abs_difference", "largest logit difference is"),
    ],
)
def test_each_figure_must_be_about_as_good_as_recorded(
    base: Path, folder: Path, name: str, words: str, exported: Exported
) -> None:
    exported("q4_0", folder)
    record = json.loads(manifest_path(folder / "m.gguf").read_text())["agreement"]
    edit_manifest(folder / "m.gguf", agreement={**record, name: 1.0 if name == "top1" else record[name] / 3})
    code, _, err = run(str(base), "--verify", "m.gguf")
    assert (code, f"when it was exported: {words}" in err, err.count(", was ")) == (1, True, 1), err


def test_an_export_of_another_version_of_the_format_is_not_taken_for_this_one(
    base: Path, folder: Path, exported: Exported
) -> None:
    exported("f16", folder)
    edit_manifest(folder / "m.gguf", format_version=1)
    assert run(str(base), "--quant", "f16", "--out", "m.gguf")[0] == 2


def test_no_export_stands_without_its_manifest(base: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    def note(manifest: Manifest, out: Path, file: Path) -> None:
        written.append(out.exists())
        raise KeyboardInterrupt

    monkeypatch.setattr(export_run, "_write_manifest", note)
    with pytest.raises(KeyboardInterrupt):
        export_gguf(base, None, "f32", folder / "m.gguf", force=False)
    assert written == [False]
    assert not (folder / "m.gguf").exists()
