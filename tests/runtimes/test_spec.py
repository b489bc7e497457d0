"""What users call a model, and which files it turns out to be."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.adapters import ADAPTER_WEIGHTS
from securecoderl_edge.models.files import base_folder
from securecoderl_edge.runs import Run, latest_run, mark_latest, newest_run, only_unfinished, run_of
from securecoderl_edge.runtimes.spec import (
    ModelSpec,
    default_comparisons,
    default_model,
    default_models,
    resolve_model,
    with_distinct_labels,
)
from securecoderl_edge.system.hub import is_hub_id


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def make_run(
    name: str = "starter",
    phases: tuple[str, ...] = ("sft", "binary"),
    base: str = "nano",
    languages: tuple[str, ...] = (),
) -> Run:
    run = Run(Path("runs") / name)
    for number, phase in enumerate(phases, 1):
        make_adapter(run.path / "phases" / f"{number}-{phase}" / "adapter")
    make_adapter(run.policy)
    (run.path / "environment.json").write_text(json.dumps({"base_model": base, "languages": languages}))
    mark_latest(run)
    return run


def make_adapter(folder: Path, base: str = "nano") -> Path:
    folder.mkdir(parents=True)
    (folder / ADAPTER_WEIGHTS).write_bytes(b"weights")
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
    return folder


def make_gguf(path: Path, content: bytes = b"GGUF and more") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_nano_is_the_built_in_model() -> None:
    assert resolve_model("nano") == ModelSpec("nano", "hf", "nano", prompt_style="stdin")


def test_a_gguf_file_is_read_by_its_first_bytes() -> None:
    path = make_gguf(Path("tiny-q8_0.gguf"))
    assert resolve_model(str(path)) == ModelSpec("tiny-q8_0", "gguf", "tiny-q8_0.gguf")


def test_a_file_that_only_has_the_name_of_a_gguf_is_refused() -> None:
    make_gguf(Path("fake.gguf"), b"PK\x03\x04")
    with pytest.raises(UsageError, match=r"fake\.gguf: not a GGUF file"):
        resolve_model("fake.gguf")


@pytest.mark.parametrize("text", ["starter", "runs/starter", "./runs/starter", "latest", "starter:policy"])
def test_a_run_is_found_by_name_or_folder_and_means_its_policy(text: str) -> None:
    make_run()
    spec = resolve_model(text)
    assert (spec.label, spec.kind, spec.source, spec.role) == ("starter", "hf", "nano", "policy")
    assert spec.adapter is not None
    assert spec.adapter.resolve() == Path("runs/starter/policy").resolve()


def test_a_phase_of_a_run_is_its_own_adapter() -> None:
    make_run()
    spec = resolve_model("starter:sft")
    assert (spec.label, spec.adapter) == ("starter:sft", Path("runs/starter/phases/1-sft/adapter"))


def test_an_unknown_phase_is_answered_with_the_phases_that_exist() -> None:
    make_run()
    with pytest.raises(UsageError, match=r"unknown phase 'partial'; choose from sft, binary"):
        resolve_model("starter:partial")


def test_a_run_without_a_policy_says_how_to_finish_it() -> None:
    run = make_run()
    (run.policy / ADAPTER_WEIGHTS).unlink()
    with pytest.raises(UsageError, match="resume it with: the command that started it"):
        resolve_model("starter")
    words = ["sce", "train", "--no-resume", "--max-steps", "3", "--out", "runs/of mine"]
    (run.path / "environment.json").write_text(json.dumps({"base_model": "nano", "command": words}))
    with pytest.raises(UsageError, match=r"resume it with: sce train --max-steps 3 --out 'runs/of mine'$"):
        resolve_model("starter")


def test_the_newest_run_is_the_one_last_worked_on_or_made_the_latest() -> None:
    assert newest_run() is None
    finished, begun = make_run("finished"), make_run("begun")
    mark_latest(finished)
    for run, second in ((finished, 100), (begun, 300)):
        os.utime(run.path / "environment.json", (second, second))
    os.utime("runs/latest", (200, 200))
    assert newest_run() == begun
    os.utime("runs/latest", (400, 400))
    assert newest_run() == finished
    (begun.path / "metrics.jsonl").touch()
    assert newest_run() == begun
    assert only_unfinished() == ""
    Path("runs/latest").unlink()
    assert newest_run() == begun
    assert only_unfinished() == "no training run has finished; resume runs/begun with: the command that started it"


def test_a_hugging_face_folder_is_a_base_model() -> None:
    Path("qwen").mkdir()
    Path("qwen/config.json").write_text("{}")
    assert resolve_model("qwen") == ModelSpec("qwen", "hf", "qwen")


def test_the_policy_folder_of_a_run_can_be_used_alone() -> None:
    run = make_run()
    spec = resolve_model("runs/starter/policy")
    assert (spec.source, spec.adapter) == ("nano", run.policy)


def test_an_adapter_outside_a_run_brings_the_base_it_names() -> None:
    make_adapter(Path("mine"), base="nano")
    assert resolve_model("mine").source == "nano"


def test_a_base_that_only_a_file_names_is_not_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def download_model(name: str, patterns: object, download: bool) -> Path:
        asked.append((name, download))
        raise UsageError("it is not there")

    monkeypatch.setattr("securecoderl_edge.models.files.download_model", download_model)
    make_adapter(Path("mine"), base="someone/model")
    run = make_run(base="someone/model")
    for name in ("mine", str(run.path), "someone/model"):
        with pytest.raises(UsageError):
            resolve_model(name).folder()
    assert asked == [("someone/model", False)] * 2 + [("someone/model", True)]


def test_a_base_whose_name_is_too_long_for_a_path_is_missing() -> None:
    run = make_run()
    (run.path / "environment.json").write_text(json.dumps({"base_model": "[" * 100_000}))
    with pytest.raises(UsageError, match="is missing; put it back"):
        resolve_model(str(run.path))


def test_an_adapter_that_names_no_base_is_refused() -> None:
    make_adapter(Path("mine"))
    Path("mine/adapter_config.json").write_text("{}")
    with pytest.raises(UsageError, match="base_model_name_or_path is missing"):
        resolve_model("mine")


@pytest.mark.parametrize("text", ["Qwen/Qwen2.5-Coder-0.5B", "deepseek-ai/deepseek-coder-1.3b-instruct"])
def test_owner_and_name_that_are_nothing_on_disk_are_a_hub_id(text: str) -> None:
    assert resolve_model(text) == ModelSpec(text, "hf", text)


@pytest.mark.parametrize("text", ["runs/startr", "starter", "missing.gguf", "models/missing.gguf", "a/b/c", "", "../x"])
def test_a_name_that_is_nothing_is_no_hub_id_and_says_how_to_get_a_model(text: str) -> None:
    Path("runs").mkdir()
    with pytest.raises(UsageError, match=r"unknown model .* train one with: sce train"):
        resolve_model(text)


def test_a_mistyped_run_is_answered_with_the_runs_there_are() -> None:
    make_run()
    with pytest.raises(UsageError, match=r"Runs in \./runs: starter"):
        resolve_model("startr")


def test_an_empty_folder_is_told_apart_from_an_unknown_name() -> None:
    Path("empty").mkdir()
    with pytest.raises(UsageError, match="empty: not a model folder"):
        resolve_model("empty")


def test_a_folder_of_gguf_files_asks_for_one_of_them() -> None:
    make_gguf(Path("files/a.gguf"))
    with pytest.raises(UsageError, match=r"choose one, for example files/a\.gguf"):
        resolve_model("files")


def test_a_base_that_has_been_moved_away_is_reported() -> None:
    make_run(base="/gone/model")
    with pytest.raises(UsageError, match="base model /gone/model is missing"):
        resolve_model("starter")


def test_without_a_run_the_defaults_are_nano() -> None:
    assert [spec.label for spec in default_models()] == ["nano"]
    assert default_model().label == resolve_model(None).label == "nano"


def test_the_default_bench_covers_base_sft_policy_and_exports_of_the_latest_run() -> None:
    run = make_run()
    make_gguf(run.exports / "starter-q8_0.gguf")
    models = default_models()
    assert [spec.label for spec in models] == ["nano", "starter:sft", "starter", "starter-q8_0"]
    assert default_comparisons(models) == [(1, 2), (2, 3)]


def test_a_phase_that_has_not_finished_is_left_out() -> None:
    run = make_run()
    (run.path / "phases/1-sft/adapter" / ADAPTER_WEIGHTS).unlink()
    models = default_models()
    assert [spec.label for spec in models] == ["nano", "starter"]
    assert default_comparisons(models) == [(0, 1)]


def test_a_run_of_sft_alone_has_one_row_for_its_policy() -> None:
    make_run(phases=("sft",))
    assert [spec.label for spec in default_models()] == ["nano", "starter"]


def test_generate_takes_the_newest_export_then_the_policy_then_nano() -> None:
    run = make_run()
    assert default_model().label == "starter"
    for age, name in ((100, "old"), (0, "new"), (200, "older")):
        path = make_gguf(run.exports / f"{name}.gguf")
        os.utime(path, (1_000_000 - age, 1_000_000 - age))
    assert default_model().label == "new"
    (run.policy / ADAPTER_WEIGHTS).unlink()
    for path in run.exports.iterdir():
        path.unlink()
    assert default_model().label == "nano"


def test_a_model_for_another_language_than_the_latest_run_is_the_built_in_one() -> None:
    assert default_model("c").label == "nano-c"
    make_run(languages=("c",))
    assert [default_model(language).label for language in (None, "c", "python")] == ["starter", "starter", "nano"]
    make_run("both", languages=("c", "python"))
    assert [default_model(language).label for language in (None, "c", "python")] == ["both", "nano-c", "both"]


def test_a_model_has_the_language_of_its_run_or_its_own() -> None:
    run = make_run(languages=("c",))
    make_gguf(run.exports / "e.gguf")
    labels = {spec.label: spec.language() for spec in (*default_models(), resolve_model("nano-c"))}
    assert labels == {"nano": "c", "starter:sft": "c", "starter": "c", "e": "c", "nano-c": "c"}
    assert resolve_model("nano").language() == resolve_model(str(make_gguf(Path("m.gguf")))).language() == "python"


def test_an_export_of_a_phase_is_compared_with_it_and_does_not_stand_for_the_policy() -> None:
    run = make_run()
    for age, part in ((100, ""), (0, "sft"), (0, "base"), (0, "sft-step-000040")):
        path = make_gguf(run.export_path("-q8_0.gguf", part))
        os.utime(path, (1_000_000 - age, 1_000_000 - age))
    assert default_model().label == "starter-q8_0"
    models = default_models()
    labels = [spec.label for spec in models]
    pairs = {(labels[first], labels[second]) for first, second in default_comparisons(models)}
    assert pairs == {
        ("starter:sft", "starter"), ("starter", "starter-q8_0"), ("starter:sft", "starter-sft-q8_0"),
        ("nano", "starter-base-q8_0"),
    }  # fmt: skip


def test_copies_hash_equal_and_a_changed_byte_hashes_otherwise() -> None:
    first, copy = make_gguf(Path("a.gguf")), make_gguf(Path("b.gguf"))
    changed = make_gguf(Path("c.gguf"), b"GGUF and morE")
    hashes = [resolve_model(str(path)).content_hash() for path in (first, copy, changed)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_hash_covers_the_adapter_and_its_base() -> None:
    run = make_run()
    before = resolve_model("starter").content_hash()
    (run.policy / ADAPTER_WEIGHTS).write_bytes(b"other weights")
    assert resolve_model("starter").content_hash() != before


def test_the_size_of_a_gguf_is_that_of_its_file_and_of_a_hub_id_unknown() -> None:
    assert resolve_model(str(make_gguf(Path("a.gguf")))).file_bytes() == 13
    assert resolve_model("owner/name").file_bytes() is None


def test_a_policy_on_a_base_that_is_elsewhere_has_no_size_and_a_hash_of_both() -> None:
    make_run("one", base="owner/name")
    make_run("two", base="owner/other")
    one, two = resolve_model("one"), resolve_model("two")
    assert one.adapter is not None
    assert one.file_bytes() is None
    assert one.content_hash() != two.content_hash()


def test_labels_that_repeat_become_distinct() -> None:
    make_gguf(Path("a/m.gguf"))
    make_gguf(Path("b/m.gguf"))
    models = [resolve_model(text) for text in ("a/m.gguf", "b/m.gguf", "nano", "nano")]
    labels = [spec.label for spec in with_distinct_labels(models)]
    assert labels == ["a/m.gguf", "b/m.gguf", "nano", "nano (2)"]


@pytest.mark.parametrize("record", ["{", "{}", "[]"])
def test_a_run_whose_record_is_damaged_is_reported(record: str) -> None:
    run = make_run()
    (run.path / "environment.json").write_text(record)
    with pytest.raises(SceError, match="base_model is missing"):
        resolve_model("starter")


def test_a_foreign_folder_among_the_phases_of_a_run_is_no_phase() -> None:
    run = make_run()
    (run.path / "phases" / "x-y").mkdir()
    assert [folder.name for folder in run.phase_folders()] == ["1-sft", "2-binary"]


def test_a_pointer_to_the_latest_run_that_is_no_text_points_nowhere() -> None:
    make_run()
    Path("runs/latest").write_bytes(b"\xff")
    assert latest_run() is None


@pytest.mark.parametrize("text", ["models/mine.safetensors", "data/mine.parquet", "runs/mine.gguf", "owner/../name"])
def test_a_file_that_is_missing_is_no_hub_id(text: str) -> None:
    assert not is_hub_id(text)
    with pytest.raises(UsageError):
        base_folder(text)


def test_an_adapter_knows_its_run_and_its_role_by_any_path(monkeypatch: pytest.MonkeyPatch) -> None:
    make_run("first")
    for path, role in (("policy", "policy"), ("phases/1-sft/adapter", "sft")):
        assert resolve_model(f"runs/first/{path}").role == role
        assert run_of(Path(f"runs/first/{path}")) == Run(Path("runs/first"))
    monkeypatch.chdir("runs/first")
    assert resolve_model("policy").role == "policy"
    assert run_of(Path("policy")) == Run(Path("."))
    assert Run(Path(".")).name == "first"


def test_json_that_is_nested_without_end_is_damaged_and_no_bug_of_ours(tmp_path: Path) -> None:
    deep = "[" * 100_000
    for name in ("run", "hf", "adapter"):
        (tmp_path / name).mkdir()
    (tmp_path / "run" / "environment.json").write_text(deep)
    with pytest.raises(SceError, match="base_model is missing"):
        _ = Run(tmp_path / "run").base_model
    (tmp_path / "hf" / "config.json").write_text(deep)
    assert resolve_model(str(tmp_path / "hf")).prompt_style is None
    (tmp_path / "adapter" / ADAPTER_WEIGHTS).touch()
    (tmp_path / "adapter" / "adapter_config.json").write_text(deep)
    with pytest.raises(UsageError, match="base_model_name_or_path is missing"):
        resolve_model(str(tmp_path / "adapter"))
