"""The packaged benchmarks: the published text, its splits, and reference solutions that pass."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from dataset_files import HUMANEVAL_RECORD, MBPP_RECORD, needs_shared, read_lines, write_lines
from places import SHARED

from securecoderl_edge.cli import sce
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems import sources
from securecoderl_edge.problems.benchmarks.files import DIGESTS, pack, packaged_file
from securecoderl_edge.problems.near_duplicates import pairs_between
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.sources import (
    benchmark_problems,
    is_built_in,
    is_for_evaluation,
    load_problems,
    open_problems,
)
from securecoderl_edge.scoring.reference_solutions import check_problems
from securecoderl_edge.scoring.scorer import Scorer

PUBLISHED = {"humaneval": SHARED / "HumanEval.jsonl.gz", "mbpp": SHARED / "mbpp.jsonl"}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sources, "open_problems", _opened_once)


@functools.cache
def _packaged_problems(path: str, max_tests: int) -> tuple[Problem, ...]:
    return tuple(open_problems(path, max_tests))


def _opened_once(path: str, max_tests: int, tell: Callable[[str], None]) -> list[Problem]:
    """A packaged file is read once by all these tests, any other whenever it is asked for."""
    if path in {str(packaged_file(name)) for name in DIGESTS}:
        return list(_packaged_problems(path, max_tests))
    return open_problems(path, max_tests, tell)


@pytest.mark.parametrize("name", DIGESTS)
def test_the_packaged_text_is_the_one_that_its_digest_names(name: str) -> None:
    packed = packaged_file(name).read_bytes()
    assert hashlib.sha256(gzip.decompress(packed)).hexdigest() == DIGESTS[name]
    assert packed[3] == 0  # no flags: neither a file name nor a comment
    assert packed[4:8] == bytes(4)  # no time


@needs_shared
@pytest.mark.parametrize("name", DIGESTS)
def test_packing_the_published_file_again_gives_the_same_text(name: str) -> None:
    pack(PUBLISHED[name], Path("again.jsonl.gz"), DIGESTS[name])
    pack(PUBLISHED[name], Path("twice.jsonl.gz"), DIGESTS[name])
    assert Path("again.jsonl.gz").read_bytes() == Path("twice.jsonl.gz").read_bytes()
    assert gzip.decompress(Path("again.jsonl.gz").read_bytes()) == gzip.decompress(packaged_file(name).read_bytes())


@needs_shared
@pytest.mark.parametrize("name", DIGESTS)
def test_the_packaged_problems_are_those_of_the_published_file(name: str) -> None:
    assert open_problems(str(PUBLISHED[name]), 1000) == load_problems(f"{name}:all", 1000)


def test_another_text_is_not_packed() -> None:
    write_lines(Path("mbpp.jsonl"), [MBPP_RECORD])
    with pytest.raises(ValueError, match="another text"):
        pack(Path("mbpp.jsonl"), Path("out.gz"), DIGESTS["mbpp"])
    assert not Path("out.gz").exists()


def test_the_splits_of_mbpp_have_the_sizes_of_the_paper_and_share_no_problem() -> None:
    splits = {name: benchmark_problems("mbpp", name) for name in ("prompt", "test", "validation", "train")}
    assert {name: len(found) for name, found in splits.items()} == {
        "prompt": 10, "test": 500, "validation": 90, "train": 374,
    }  # fmt: skip
    ids = [problem.id for found in splits.values() for problem in found]
    assert len(set(ids)) == len(ids) == 974
    assert set(ids) == {problem.id for problem in benchmark_problems("mbpp", "all")}
    numbers = {name: [int(each.id.partition("/")[2]) for each in found] for name, found in splits.items()}
    assert {name: (min(found), max(found)) for name, found in numbers.items()} == {
        "prompt": (1, 10), "test": (11, 510), "validation": (511, 600), "train": (601, 974),
    }  # fmt: skip


def test_the_name_alone_is_the_test_split() -> None:
    assert load_problems("mbpp") == load_problems("mbpp:test")
    assert len(load_problems("humaneval")) == 164
    assert max(problem.test_count for problem in load_problems("humaneval")) == 5
    assert max(problem.test_count for problem in benchmark_problems("humaneval")) == 26
    assert all(problem.solutions for name in DIGESTS for problem in load_problems(f"{name}:all"))


def test_an_unknown_split_is_named_with_those_that_exist() -> None:
    for source in ("mbpp:eval", "humaneval:train"):
        assert is_built_in(source)
        with pytest.raises(UsageError, match=f"unknown split {source}; choose from test, "):
            load_problems(source)


def test_test_problems_are_known_to_be_for_evaluation() -> None:
    for source in ("humaneval", "humaneval:test", "mbpp", "mbpp:test", "mbpp:all"):
        assert is_for_evaluation(source)
    for source in ("mbpp:train", "mbpp:validation", "mbpp:clean", "starter", "starter:eval", "mbpp.jsonl"):
        assert not is_for_evaluation(source)


def test_clean_problems_are_for_training_and_unlike_every_problem_of_an_evaluation() -> None:
    clean = load_problems("mbpp:clean")
    left_out = [each for split in ("train", "validation") for each in load_problems(f"mbpp:{split}")]
    evaluated = [*load_problems("mbpp:test"), *load_problems("humaneval:test")]
    assert not list(pairs_between(clean, evaluated))
    near = {place for place, _, _ in pairs_between(left_out, evaluated)}
    assert clean == [problem for place, problem in enumerate(left_out) if place not in near]
    assert len(clean) == 290


def test_a_published_file_in_the_folder_replaces_the_packaged_one() -> None:
    told: list[str] = []
    check = "def check(f):\n" + "".join(f"    assert f({n}) == {2 * n}\n" for n in range(9))
    write_lines(Path("HumanEval.jsonl"), [{**HUMANEVAL_RECORD, "test": check}])
    assert [problem.test_count for problem in benchmark_problems("humaneval", tell=told.append)] == [9]
    assert told == ["humaneval: reading HumanEval.jsonl in this folder; humaneval:test is the packaged file"]
    write_lines(Path("mbpp.jsonl"), [{**MBPP_RECORD, "task_id": number} for number in (7, 11, 510, 511)])
    assert [problem.id for problem in benchmark_problems("mbpp")] == ["mbpp/11", "mbpp/510"]
    write_lines(Path("mbpp-problems.jsonl"), [{**MBPP_RECORD, "task_id": 12}])
    assert [problem.id for problem in benchmark_problems("mbpp")] == ["mbpp/11", "mbpp/510"]
    write_lines(Path("mbpp.jsonl"), [MBPP_RECORD])
    with pytest.raises(SceError, match="no problems from the mbpp test split"):
        benchmark_problems("mbpp")


def test_a_split_that_is_named_comes_from_the_package_whatever_the_folder_holds() -> None:
    write_lines(Path("mbpp.jsonl"), [{**MBPP_RECORD, "task_id": 11}])
    assert len(benchmark_problems("mbpp", "test")) == 500


def _checked(problems: list[Problem]) -> list[str]:
    # Its reference takes about 4 of the 5 seconds on slow processors.
    problems = [replace(each, time_limit_s=20.0) if each.id == "mbpp/123" else each for each in problems]
    with Scorer() as scorer:
        report = check_problems(problems, scorer)
    assert report.passed + len(report.failed) == len(problems)
    return [failure.id for failure in report.failed]


def test_reference_solutions_pass_all_their_tests() -> None:
    assert _checked(benchmark_problems("humaneval")[::8] + benchmark_problems("mbpp", "all")[::48]) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_reference_solution_passes_all_its_tests() -> None:
    assert _checked(benchmark_problems("humaneval") + benchmark_problems("mbpp", "all")) == []


def test_a_wrong_reference_solution_is_found() -> None:
    (first, second, *_) = benchmark_problems("humaneval")
    wrong = Problem(**{**vars(first), "solutions": second.solutions})
    assert _checked([wrong, second]) == [first.id]


# Commands


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(sce, ["data", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_data_commands_take_the_names() -> None:
    assert "374 call" in _run("stats", "mbpp:train")
    assert "has_close_elements" in _run("show", "humaneval", "humaneval/0")
    assert "wrote 90 to mbpp-validation-problems.jsonl" in _run("import", "mbpp:validation")
    assert load_problems("mbpp-validation-problems.jsonl", 1000) == load_problems("mbpp:validation", 1000)
    assert "10 of 10 problems pass" in _run("check", "mbpp:prompt")


def test_a_format_is_not_taken_for_a_set_that_has_no_file() -> None:
    result = CliRunner().invoke(sce, ["data", "import", "humaneval", "--format", "mbpp"])
    assert isinstance(result.exception, UsageError)
    assert "--format is for files" in str(result.exception)


def test_completions_of_a_benchmark_are_scored_with_all_tests() -> None:
    problem = benchmark_problems("humaneval")[0]
    Path("done.jsonl").write_text(json.dumps({"id": problem.id, "completion": problem.solutions[0]}) + "\n")
    result = CliRunner().invoke(
        sce, ["score", "--problems", "humaneval", "--completions", "done.jsonl", "--out", "scores.jsonl"]
    )
    assert result.exit_code == 0, result.output
    (row,) = read_lines("scores.jsonl")
    assert (row["passed"], row["total"]) == (7, 7)


def test_training_on_test_problems_is_warned_of() -> None:
    for source, expected in (("mbpp", True), ("humaneval:test", True), ("mbpp:train", False)):
        result = CliRunner().invoke(
            sce, ["train", "--recipe", "starter", "--problems", source, "--model", "nowhere", "--dry-run"]
        )
        assert ("is for evaluation" in result.stderr) == expected
        assert ("To train: mbpp:clean" in result.stderr) == expected
