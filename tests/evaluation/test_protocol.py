"""Benchmarks asked as published results ask them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from securecoderl_edge.errors import UsageError
from securecoderl_edge.evaluation.bench import BenchSettings, bench_problems, with_budgets
from securecoderl_edge.evaluation.protocol import EVALPLUS_STOPS, PROTOCOLS, asked_as
from securecoderl_edge.problems.sources import benchmark_problems
from securecoderl_edge.prompts.styles import OURS


def test_every_protocol_keeps_tests_and_ids() -> None:
    problems = benchmark_problems("mbpp", "all")
    for protocol in PROTOCOLS:
        asked = asked_as(problems, protocol)
        assert [replace(each, statement="") for each in asked] == [replace(each, statement="") for each in problems]


def test_the_signature_is_shown_by_our_protocol_alone() -> None:
    problems = benchmark_problems("mbpp", "all")
    assert all("Write the function `" in each.statement for each in problems)
    for protocol, shown in (("evalplus", 1), ("classic", None)):
        for before, each in zip(problems, asked_as(problems, protocol), strict=True):
            assert "Write the function `" not in each.statement
            lines = each.assertions[:shown]
            assert each.statement.endswith("\n".join(lines)) or "test_setup" in before.statement or "\n" in lines[0]


def test_humaneval_is_its_given_code() -> None:
    problems = benchmark_problems("humaneval")
    assert asked_as(problems, "evalplus") == problems


def test_a_protocol_is_refused_for_other_problems() -> None:
    with pytest.raises(UsageError, match="--protocol classic is for problems of mbpp, and humaneval/0 is none"):
        asked_as(benchmark_problems("humaneval"), "classic")
    with pytest.raises(UsageError, match="--protocol evalplus is for problems of humaneval or"):
        bench_problems(BenchSettings(problems="starter:eval", protocol="evalplus"))


def test_a_protocol_decides_prompt_length_and_end() -> None:
    asked = with_budgets(BenchSettings(problems="humaneval", protocol="evalplus"), [])
    assert (asked.prompt_style, asked.max_tokens, asked.extract) == ("evalplus", 768, "definitions")
    assert asked.plan(OURS).sampling.stop == EVALPLUS_STOPS
    assert with_budgets(BenchSettings(problems="mbpp"), []).max_tokens == 768
    assert with_budgets(BenchSettings(), []).max_tokens == 256
    with pytest.raises(UsageError, match="decides the prompt"):
        with_budgets(BenchSettings(problems="humaneval", protocol="evalplus", prompt_style="chat"), [])
