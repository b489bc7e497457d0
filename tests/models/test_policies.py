"""The policies of this package: files, manifests and records agree, and all of it is in the wheel."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest
from places import ROOT

from securecoderl_edge.config import read_toml
from securecoderl_edge.models.catalog import NAMED, ORIGINS, POLICIES
from securecoderl_edge.models.files import POLICY_ADAPTERS
from securecoderl_edge.models.gguf.header import header_strings, is_adapter
from securecoderl_edge.prompts.styles import STYLE_KEY
from securecoderl_edge.runs import Run
from securecoderl_edge.runtimes.bases import trained_on
from securecoderl_edge.runtimes.manifests import manifest_path
from securecoderl_edge.system.files import read_json, sha256_of

CODER = "qwen-0.5b-coder"
# Tests have their own cache folder; this file of the user is only read.
PULLED = Path.home() / ".cache" / "securecoderl-edge" / "models" / f"{POLICIES[CODER]}.gguf"
each_policy = pytest.mark.parametrize("name", POLICIES)


@each_policy
def test_the_file_is_the_one_of_its_manifest_and_small(name: str) -> None:
    adapter = POLICY_ADAPTERS[name]
    manifest = read_json(manifest_path(adapter))
    assert (manifest["file"], manifest["sha256"]) == (f"{name}.gguf", sha256_of(adapter))
    assert adapter.stat().st_size <= 18e6
    assert is_adapter(adapter)
    assert manifest["prompt_style"] == header_strings(adapter)[STYLE_KEY]


@each_policy
def test_the_record_is_that_of_a_run_on_its_base(name: str) -> None:
    run = Run(POLICY_ADAPTERS[name].parent)
    settings = read_toml(run.path / "config.toml")
    assert run.base_model == POLICIES[name] == settings["model"]
    assert run.budget.max_tokens == settings["ppo"]["max_tokens"]
    assert run.prompt_style == read_json(manifest_path(POLICY_ADAPTERS[name]))["prompt_style"]
    assert read_json(run.path / "environment.json")["seed"] == settings["seed"]


@each_policy
def test_the_sum_of_its_base_is_known(name: str) -> None:
    digest = trained_on(POLICY_ADAPTERS[name])
    assert digest is not None
    if (origin := ORIGINS.get(POLICIES[name])) is not None:
        assert digest == origin.sha256


@each_policy
def test_a_policy_has_the_parameters_of_its_base_and_both_licenses(name: str) -> None:
    rows = {row.name: row for row in NAMED}
    base = rows[POLICIES[name]]
    assert rows[name].parameters == base.parameters
    assert rows[name].license == f"{base.license} + MIT"


@each_policy
def test_every_file_of_a_policy_is_in_the_wheel(name: str) -> None:
    folder, settings = POLICY_ADAPTERS[name].parent, read_toml(ROOT / "pyproject.toml")["tool"]["setuptools"]
    package = f"securecoderl_edge.models.{folder.name}"
    assert package in settings["packages"]
    files = {file.name for file in folder.iterdir() if file.suffix not in (".py", "")}
    assert {"MODEL_CARD.md", "config.toml", "environment.json", f"{name}.gguf"} < files
    assert [file for file in files if not any(fnmatch(file, each) for each in settings["package-data"][package])] == []


def test_the_card_of_the_coder_has_the_sums_and_settings_of_its_files() -> None:
    adapter = POLICY_ADAPTERS[CODER]
    card = (adapter.parent / "MODEL_CARD.md").read_text(encoding="utf-8")
    settings, manifest = read_toml(adapter.parent / "config.toml"), read_json(manifest_path(adapter))
    facts = [sha256_of(adapter), ORIGINS[POLICIES[CODER]].sha256, f"Seed {settings['seed']}", settings["problems"]]
    facts += [
        f"rank {settings['lora']['rank']}",
        f"{manifest['tensors']} tensors",
        f"{settings['ppo']['max_tokens']} tokens",
    ]
    assert [fact for fact in facts if fact not in card] == []


@pytest.mark.slow
@pytest.mark.skipif(not PULLED.is_file(), reason="needs the pulled model qwen-0.5b")
def test_the_coder_answers_in_another_way_than_its_base() -> None:
    pytest.importorskip("llama_cpp", reason="needs the gguf extra")
    from securecoderl_edge.problems.sources import load_problems
    from securecoderl_edge.runtimes.adapted import resolve_adapted
    from securecoderl_edge.runtimes.opening import RuntimeSettings, opened
    from securecoderl_edge.runtimes.protocol import Sampling

    problem, texts = load_problems("mbpp:test")[0], []
    for adapter in (None, CODER):
        with opened(resolve_adapted(str(PULLED), adapter), RuntimeSettings("cpu", threads=1)) as (runtime, format):
            ((completion,),) = runtime.generate([format.prompt(problem)], 1, Sampling(temperature=0.0, max_tokens=96))
        texts.append(completion.text)
    assert texts[0] != texts[1]
