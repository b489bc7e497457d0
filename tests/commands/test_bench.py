"""``sce bench`` with runtimes that need no model, and once with a real file."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli_runs import run_sce
from fake_runtime import BROKEN, RIGHT, UNSAFE, WRONG, FakeRuntime, Writer, always, problem
from quick import few
from rich.console import Console

from securecoderl_edge.errors import MissingExtra
from securecoderl_edge.models.adapters import ADAPTER_WEIGHTS
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.runs import Run, mark_latest
from securecoderl_edge.runtimes.spec import ModelSpec

Opened = list[tuple[ModelSpec, dict[str, Any], FakeRuntime]]

pytestmark = pytest.mark.usefixtures("one_sandbox")


def run(*args: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``sce bench``."""
    return run_sce("bench", *args)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with six problems and two files that pass for models."""
    monkeypatch.chdir(tmp_path)
    write_problems(tmp_path / "six.jsonl", [problem(number) for number in range(6)])
    for name, text in (("good", "GGUF good"), ("bad", "GGUF bad"), ("copy", "GGUF good")):
        (tmp_path / f"{name}.gguf").write_text(text)
    return tmp_path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """What was opened, in order; each model writes what its label promises."""
    texts: dict[str, Writer] = {"good": always(RIGHT), "copy": always(RIGHT), "bad": always(BROKEN)}
    found: Opened = []

    def open_fake(spec: ModelSpec, **options: Any) -> FakeRuntime:
        if spec.label == "missing-extra":
            raise MissingExtra("llama_cpp", "gguf")
        runtime = FakeRuntime(texts.get(spec.label, always(WRONG)))
        found.append((spec, options, runtime))
        return runtime

    monkeypatch.setattr("securecoderl_edge.runtimes.opening.open_runtime", open_fake)
    return found


def test_the_table_has_a_row_a_model_and_fits_100_columns(folder: Path, opened: Opened) -> None:
    code, out, err = run("good.gguf", "bad.gguf", "--problems", "six.jsonl")
    assert code == 0
    assert max(len(line) for line in out.splitlines()) <= 100
    assert "Sec.Clean %" in out
    assert "100.0" in next(line for line in out.splitlines() if line.startswith("good"))
    assert "good: 6 programs in" in err


@pytest.mark.parametrize("width", few([60, 80, 100], 60))
def test_on_a_terminal_the_tables_fit_its_width(
    folder: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    terminal = Console(force_terminal=True, color_system=None, width=width, markup=False)
    monkeypatch.setattr("securecoderl_edge.commands.terminal_tables.data", terminal)
    code, out, _ = run("good.gguf", "copy.gguf", "--problems", "six.jsonl", "--compare")
    assert code == 0
    assert max(len(line) for line in out.splitlines()) <= width
    assert "All-P %" in out
    assert out.count("not distinguishable") == 7


def test_json_is_one_document_with_figures_settings_and_machine(folder: Path, opened: Opened) -> None:
    code, out, _ = run("good.gguf", "--problems", "six.jsonl", "--samples", "2", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["models"][0]["samples"] == 12
    assert document["models"][0]["all_tests_rate"]["value"] == 1
    assert document["models"][0]["file_bytes"] == 9
    assert document["settings"]["seed"] == 42
    assert document["machine"]["cpu"]
    assert "python" in document["machine"]["versions"]


def test_csv_and_markdown_hold_the_same_models(folder: Path, opened: Opened) -> None:
    args = ("good.gguf", "bad.gguf", "--problems", "six.jsonl")
    lines = list(csv.DictReader(io.StringIO(run(*args, "--csv")[1])))
    assert [line["model"] for line in lines] == ["good", "bad"]
    text = run(*args, "--markdown")[1]
    # The statements differ in a number only: they are one group, which is one observation.
    assert "of 6 problems in 1 group of six.jsonl" in text
    assert "| good | 100.0 [20.7, 100.0] |" in text


def test_equal_files_are_not_distinguishable(folder: Path, opened: Opened) -> None:
    code, out, _ = run("good.gguf", "copy.gguf", "--problems", "six.jsonl", "--compare", "--json")
    differences = json.loads(out)["comparisons"][0]["differences"]
    assert code == 0
    assert not any(difference["distinguishable"] for difference in differences.values())


def test_comparing_sets_each_model_against_the_first(folder: Path, opened: Opened) -> None:
    out = run("good.gguf", "bad.gguf", "copy.gguf", "--problems", "six.jsonl", "--compare", "--json")[1]
    pairs = [(item["first"], item["second"]) for item in json.loads(out)["comparisons"]]
    assert pairs == [("good", "bad"), ("good", "copy")]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--json", "--csv"), "--json and --csv exclude each other"),
        (("--csv", "--compare"), "--csv cannot show differences"),
        (("--adapter", "good.gguf"), "--adapter needs one MODEL. Of several, name each pair: BASE.gguf+LORA.gguf"),
        (("--merge", "--adapter", "good.gguf"), "--merge joins files of finished models. Leave out --adapter"),
    ],
)
def test_flags_that_would_leave_something_out_are_refused(
    folder: Path, opened: Opened, flags: tuple[str, ...], message: str
) -> None:
    code, out, err = run("good.gguf", "bad.gguf", "--problems", "six.jsonl", *flags)
    assert (code, out, message in err, opened) == (2, "", True, [])


def test_comparing_one_model_is_a_usage_error(folder: Path, opened: Opened) -> None:
    code, _, err = run("good.gguf", "--compare", "--problems", "six.jsonl")
    assert code == 2
    assert "at least two models" in err
    code, _, err = run("--adapter", "good.gguf", "--compare", "--problems", "six.jsonl")
    assert (code, "--compare needs the MODEL without the adapter" in err) == (2, True)


def test_without_models_the_latest_run_is_measured_and_policy_compared_with_sft(folder: Path, opened: Opened) -> None:
    run_folder = Run(folder / "runs" / "starter")
    for adapter in ("phases/1-sft/adapter", "phases/2-binary/adapter", "policy"):
        (run_folder.path / adapter).mkdir(parents=True)
        (run_folder.path / adapter / ADAPTER_WEIGHTS).write_bytes(b"weights")
    (run_folder.path / "environment.json").write_text('{"base_model": "nano"}')
    mark_latest(run_folder)
    out = run("--problems", "six.jsonl", "--json")[1]
    document = json.loads(out)
    assert [model["model"] for model in document["models"]] == ["nano", "starter:sft", "starter"]
    assert [(item["first"], item["second"]) for item in document["comparisons"]] == [("starter:sft", "starter")]


def test_flags_reach_the_runtime_and_the_sampling(folder: Path, opened: Opened) -> None:
    run(
        *("good.gguf", "--problems", "six.jsonl", "--limit", "3", "--threads", "1", "--parallel", "8"),
        *("--temperature", "0", "--max-tokens", "99", "--samples", "2"),
    )
    _, options, runtime = opened[0]
    settings = options["settings"]
    assert (settings.threads, options["parallel"], settings.device) == (1, 8, "cpu")
    assert len(runtime.prompts) == 3
    sampling = runtime.calls[0][1]
    assert (sampling.temperature, sampling.max_tokens) == (0, 99)


def test_every_runtime_is_closed(folder: Path, opened: Opened) -> None:
    run("good.gguf", "bad.gguf", "--problems", "six.jsonl")
    assert [runtime.is_closed for _, _, runtime in opened] == [True, True]


def test_a_bench_with_a_folder_is_not_repeated_and_leaves_its_record(folder: Path, opened: Opened) -> None:
    args = ("good.gguf", "--problems", "six.jsonl", "--out", "kept", "--json")
    (_, once, said), (_, twice, said_again) = run(*args), run(*args)
    first, second = json.loads(once), json.loads(twice)
    assert opened[1][2].calls == []
    assert "good: 6 programs in " in said
    assert re.search(r"good: 0 programs in .*; 6 reused", said_again)
    assert first["models"] == second["models"] == json.loads((folder / "kept/bench.json").read_text())["models"]


def test_a_bench_goes_on_where_the_processor_seems_slower_than_before(
    folder: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds in (0.0, 1.0):
        monkeypatch.setattr("securecoderl_edge.sandbox.calibration._seconds", lambda seconds=seconds: seconds)
        run("good.gguf", "--problems", "six.jsonl", "--out", "kept")
    assert opened[1][2].calls == []


def test_other_content_under_the_same_name_is_measured_again(folder: Path, opened: Opened) -> None:
    args = ("good.gguf", "--problems", "six.jsonl", "--out", "kept")
    run(*args)
    shutil.copy("bad.gguf", "good.gguf")
    run(*args)
    assert len(opened[1][2].prompts) == 6


def test_a_raised_limit_measures_only_what_is_new(folder: Path, opened: Opened) -> None:
    args = ("good.gguf", "--problems", "six.jsonl", "--out", "kept", "--parallel", "64")
    run(*args, "--limit", "6")
    run(*args)
    assert opened[1][2].prompts == []


def test_a_model_that_cannot_be_opened_does_not_cost_the_others(folder: Path, opened: Opened) -> None:
    (folder / "missing-extra.gguf").write_text("GGUF")
    code, out, err = run("missing-extra.gguf", "good.gguf", "--problems", "six.jsonl", "--json")
    assert code == 1
    assert [model["model"] for model in json.loads(out)["models"]] == ["good"]
    assert "llama_cpp is not installed; run: " in err
    assert "[gguf]'" in err
    assert "1 of 2 models could not be evaluated" in err


def test_the_only_model_failing_is_said_once(folder: Path, opened: Opened) -> None:
    (folder / "missing-extra.gguf").write_text("GGUF")
    code, out, err = run("missing-extra.gguf", "--problems", "six.jsonl")
    assert (code, out) == (1, "")
    assert err.count("is not installed") == 1


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("nonsense",), 2, "unknown model 'nonsense'"),
        (("fake.gguf",), 2, "not a GGUF file"),
        (("good.gguf", "--problems", "missing.jsonl"), 2, "missing.jsonl: no such file"),
        (("good.gguf", "--problems", "broken.jsonl"), 1, "broken.jsonl:1: not valid JSON"),
        (("good.gguf", "--samples", "0"), 2, "--samples"),
        (("good.gguf", "--device", "tpu"), 2, "--device"),
    ],
)
def test_bad_input_is_one_sentence_before_any_model_is_opened(
    folder: Path, opened: Opened, args: tuple[str, ...], code: int, message: str
) -> None:
    (folder / "fake.gguf").write_text("PK")
    (folder / "broken.jsonl").write_text("{")
    found, out, err = run(*args)
    assert (found, out, opened) == (code, "", [])
    assert message in err
    assert "Traceback" not in err


@pytest.mark.usefixtures("c_compiler")
def test_models_for_c_are_evaluated_in_c_unless_others_are_not(folder: Path, opened: Opened) -> None:
    assert json.loads(run("nano-c", "--limit", "1", "--json")[1])["settings"]["problems"] == "starter:c-eval"
    _, out, err = run("nano-c", "nano", "--limit", "1", "--json")
    assert json.loads(out)["settings"]["problems"] == "starter:eval"
    assert "nano-c: for C, but the problems are in Python" in err


def test_an_unsafe_program_lowers_the_security_figure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = FakeRuntime(always(UNSAFE))
    monkeypatch.setattr("securecoderl_edge.runtimes.opening.open_runtime", lambda spec, **_: runtime)
    document = json.loads(run("good.gguf", "--problems", "six.jsonl", "--json")[1])
    assert document["models"][0]["secure_rate"]["value"] == 0
    assert document["models"][0]["all_tests_rate"]["value"] == 1


def test_several_samples_give_pass_at_k_in_every_format(folder: Path, opened: Opened) -> None:
    args = ("good.gguf", "bad.gguf", "--problems", "six.jsonl", "--samples", "5", "--out", "rows")
    record = json.loads(run(*args, "--json")[1])["models"]
    assert [record[0][f"pass_at_{k}"]["value"] for k in (1, 5)] == [1.0, 1.0]
    assert [record[1][f"pass_at_{k}"]["value"] for k in (1, 5)] == [0.0, 0.0]
    assert "pass_at_10" not in record[0]
    lines = list(csv.DictReader(io.StringIO(run(*args, "--csv")[1])))
    assert [line["pass_at_5"] for line in lines] == ["1.0", "0.0"]
    assert "| Model | pass@1 % | pass@5 % |" in run(*args, "--markdown")[1]
    assert "pass@5 %" in run(*args)[1]
    assert "pass@1 %" not in run("good.gguf", "--problems", "six.jsonl")[1]


def test_pass_at_k_is_the_mean_of_the_unbiased_estimates(folder: Path, opened: Opened) -> None:
    from securecoderl_edge.evaluation.summary import summarize
    from securecoderl_edge.scoring.intervals import pass_at_k

    rows = [
        {"id": str(n), "sample": sample, "stage": 4, "passed": int(sample < n), "total": 1, "reward": 1.0,
         "reward_paper": 1.0, "r_tests": 1.0, "severity": 0}
        for n in range(4) for sample in range(6)
    ]  # fmt: skip
    # A program that passes some of its tests has not passed.
    rows = [{**row, "passed": 3 if row["passed"] else row["sample"] % 3, "total": 3} for row in rows]
    found = summarize("m", rows).pass_at
    assert list(found) == [1, 5, 6]
    for k, interval in found.items():
        assert interval.value == pytest.approx(sum(pass_at_k(6, n, k) for n in range(4)) / 4)


def test_a_benchmark_file_of_another_format_is_measured_as_it_is(folder: Path, opened: Opened) -> None:
    record = {
        "task_id": "HumanEval/0", "prompt": 'def double(x):\n    """Twice x."""\n', "entry_point": "double",
        "canonical_solution": "    return 2 * x\n",
        "test": "def check(f):\n" + "".join(f"    assert f({n}) == {2 * n}\n" for n in range(7)),
    }  # fmt: skip
    (folder / "HumanEval.jsonl").write_text(json.dumps(record) + "\n")
    for source, tests in (("humaneval", 7), ("HumanEval.jsonl", 5)):
        run("good.gguf", "--problems", source, "--prompt-style", "code", "--out", f"{source}-rows")
        (row,) = [
            json.loads(line)
            for path in Path(f"{source}-rows").glob("*/rows.jsonl")
            for line in path.read_text().splitlines()
        ]
        assert (row["id"], row["total"]) == ("humaneval/0", tests)
    assert opened[-1][2].prompts == [record["prompt"]]
    assert "reading HumanEval.jsonl in this folder" in run("good.gguf", "--problems", "humaneval")[2]


def test_other_problems_are_another_log(folder: Path, opened: Opened) -> None:
    for name in ("six.jsonl", "five.jsonl"):
        lines = Path("six.jsonl").read_text().splitlines(keepends=True)
        Path("five.jsonl").write_text("".join(lines[:5]))
        run("good.gguf", "--problems", name, "--out", "rows")
    assert len(list(Path("rows").glob("*/usage.jsonl"))) == 2


def test_a_budget_for_prompts_that_holds_none_is_named(folder: Path, opened: Opened) -> None:
    code, _, err = run("good.gguf", "--problems", "six.jsonl", "--max-prompt-tokens", "1")
    assert code == 1
    assert "raise --max-prompt-tokens" in err


def test_a_benchmark_needs_no_file_and_is_evaluated_with_all_tests(folder: Path, opened: Opened) -> None:
    for source, tests in (("humaneval", 7), ("mbpp:train", 3)):
        shown = run("good.gguf", "--problems", source, "--limit", "1", "--json", "--out", "rows", "--max-tests", "2")
        assert shown[0] == 0, shown[2]
        (rows,) = Path("rows").glob("*/rows.jsonl")
        assert json.loads(rows.read_text())["total"] == tests
        shutil.rmtree("rows")


def test_the_style_of_the_prompts_is_shown(folder: Path, opened: Opened) -> None:
    args = ("good.gguf", "bad.gguf", "--problems", "six.jsonl")
    cut = run(*args, "--prompt-style", "paper", "--max-prompt-tokens", "15")[1].splitlines()
    assert "prompt style paper, 6 of 6 prompts truncated" in cut
    assert "prompt style stdin" in run(*args)[1].splitlines()


@pytest.mark.parametrize("kind", few(["svg", "png", "pdf"], "svg", "png"))
def test_a_picture_of_the_figures(folder: Path, opened: Opened, kind: str) -> None:
    pytest.importorskip("matplotlib")
    code, _, err = run("good.gguf", "bad.gguf", "--problems", "six.jsonl", "--plot", f"one.{kind}")
    assert (code, f"wrote the plot to one.{kind}" in err) == (0, True), err
    content = (folder / f"one.{kind}").read_bytes()
    if kind == "svg":
        shown = ("good", "bad", "parses, %", "passes all tests, %", "Bandit-clean, %", "decoding, tokens/s")
        for text in (*shown, "6 problems, ", "95 % CI"):
            assert text.encode() in content
    assert content[:5] in (b"<?xml", b"\x89PNG\r", b"%PDF-")


def test_what_cannot_be_drawn_does_not_cost_the_figures(folder: Path, opened: Opened) -> None:
    pytest.importorskip("matplotlib")
    (folder / "d.png").mkdir()
    assert run("good.gguf", "--problems", "six.jsonl", "--plot", "d.png")[0] == 2
    assert opened == []
    code, out, err = run("good.gguf", "--problems", "six.jsonl", "--plot", "/proc/none/p.png")
    assert (code, "cannot write" in err, "good" in out) == (1, True, True)


def test_a_picture_of_another_kind_is_refused_before_anything_is_measured(folder: Path, opened: Opened) -> None:
    code, _, err = run("good.gguf", "--problems", "six.jsonl", "--plot", "figures.docx")
    assert (code, "must end in .svg, .png, .pdf" in err, opened) == (2, True, [])


def test_a_precision_that_no_model_would_use_is_refused(tiny_gguf: Path) -> None:
    for command in (("bench", str(tiny_gguf)), ("generate", "Print 1.", "--model", str(tiny_gguf))):
        code, _, told = run_sce(*command, "--base-precision", "bf16")
        assert code == 2
        assert "has no effect on GGUF" in told
