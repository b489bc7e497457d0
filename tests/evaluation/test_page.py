"""`sce report`: one page about a run, whatever its files hold."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from securecoderl_edge.cli import sce
from securecoderl_edge.errors import MissingExtra
from securecoderl_edge.evaluation.report.charts import CHARTS, LEVELS_TITLE, SIGN_NAMES
from securecoderl_edge.evaluation.report.contents import MOST_RUNS, read_contents
from securecoderl_edge.evaluation.report.page import render_page
from securecoderl_edge.evaluation.report.run_history import read_history
from securecoderl_edge.runs import Run
from securecoderl_edge.scoring.intervals import rate_interval
from securecoderl_edge.scoring.reward import STAGE_NAMES
from securecoderl_edge.scoring.signs import SIGNS

needs_charts = pytest.mark.usefixtures("charts")
HOSTILE = "</pre><script>alert(1)</script>\x1b]0;owned\x07\x00\u202e\ud800<!--"
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "table", "tr", "th", "td", "ul", "li"),
    *("div", "figure", "figcaption", "pre", "details", "summary"),
    *("svg", "g", "path", "use", "defs", "clippath", "rect", "text"),
}
ENVIRONMENT = {
    "base_model": "nano",
    "started": "2026-01-02T03:04:05+0000",
    "machine": {"cpu": "A CPU", "cores": 2, "memory_bytes": 2**33, "system": "Linux"},
    "device": "cpu",
    "seed": 42,
}
MakeRun = Callable[..., Run]


@pytest.fixture
def charts() -> None:
    pytest.importorskip("matplotlib")


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.programs: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag == "pre":
            self.programs.append("")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.programs:
            self.programs[-1] += data


def update(phase: str, step: int, **changes: Any) -> dict[str, Any]:
    names = {line.name for chart in CHARTS for line in chart.lines if not line.held_out}
    stages = dict.fromkeys(STAGE_NAMES, step)
    return {"phase": phase, "step": step, "steps": 9, **dict.fromkeys(names, 0.25), "stages": stages, **changes}


def short(phase: str, step: int, **changes: Any) -> dict[str, Any]:
    """An update with numbers for one chart alone: drawing takes most of the time of a page."""
    return {"phase": phase, "step": step, "steps": 9, "all_tests_rate": 0.25, **changes}


def sample(step: int, name: str, program: str = "print(1)\n", **changes: Any) -> dict[str, Any]:
    facts = {"id": name, "stage": 4, "passed": 5, "total": 5, "reward": 1.0, "program": program}
    return {"phase": "binary", "step": step, **facts, **changes}


def outcome(*steps: int) -> dict[str, Any]:
    held_out = [{"step": step, "reward": 0.5 + step / 100, "all_tests_rate": step / 100} for step in steps]
    facts = {"chosen_step": steps[-1], "why": "it did best", "steps": steps[-1]}
    return {**facts, "held_out": held_out}


def lines(rows: list[Any]) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    def make(
        metrics: list[Any] | None = None,
        samples: list[Any] | None = None,
        done: dict[str, Any] | None = None,
        name: str = "trial",
    ) -> Run:
        run = Run(tmp_path / "runs" / name)
        run.path.mkdir(parents=True)
        (run.path / "environment.json").write_text(json.dumps(ENVIRONMENT))
        (run.path / "config.toml").write_text('model = "nano"\n')
        for name, rows in (("metrics", metrics), ("samples", samples)):
            if rows is not None:
                (run.path / f"{name}.jsonl").write_text(lines(rows))
        for number, (phase, facts) in enumerate((done or {}).items(), 1):
            (run.phase_folder(number, phase) / "adapter").mkdir(parents=True)
            if isinstance(facts, dict):
                evaluations = [{"phase": phase, **row} for row in facts.pop("held_out", [])]
                (run.phase_folder(number, phase) / "evaluations.jsonl").write_text(lines(evaluations))
            if facts is not None:
                text = facts if isinstance(facts, str) else json.dumps(facts)
                (run.phase_folder(number, phase) / "adapter" / "done.json").write_text(text)
        return run

    return make


def render_report(*runs: Run) -> str:
    return render_page(read_contents(runs))


def report(*arguments: str) -> Result:
    return CliRunner().invoke(sce, ["report", *arguments])


@needs_charts
def test_a_finished_run_is_told_in_full(make_run: MakeRun) -> None:
    metrics = [update("sft", 1), update("sft", 2), *(update("binary", step) for step in range(1, 5))]
    run = make_run(metrics, [sample(1, "a"), sample(4, "a")], {"sft": outcome(0, 2), "binary": outcome(0, 4)})
    page = Page(render_report(run))
    for part in ("Training run trial", "nano", "2026-01-02", "A CPU, 2 cores, 8 GiB, Linux", "42", "it did best"):
        assert part in page.text
    assert "0.500" in page.text
    assert "0.540" in page.text
    assert all(chart.title in page.text for chart in CHARTS)
    assert LEVELS_TITLE in page.text
    assert all(SIGN_NAMES[sign] in page.text for sign in SIGNS)
    assert all(stage in page.text for stage in STAGE_NAMES)
    assert "Missing data" not in page.text
    assert 'model = "nano"' in page.text
    assert page.tags.count("svg") == len(CHARTS) + 1


@needs_charts
def test_what_files_hold_is_text_and_never_markup(make_run: MakeRun) -> None:
    facts = {**outcome(0, 2), "why": HOSTILE}
    rows = [update("binary", 1), update(HOSTILE, 1, stages={HOSTILE: 3}), update("$\\frac", 2)]
    run = make_run(rows, [sample(1, HOSTILE, HOSTILE), sample(2, HOSTILE, HOSTILE)], {"binary": facts})
    (run.path / "config.toml").write_text(HOSTILE.replace("\ud800", ""))
    (run.path / "environment.json").write_text(json.dumps({**ENVIRONMENT, "base_model": HOSTILE, "seed": [HOSTILE]}))
    text = render_report(run)
    page = Page(text)
    assert "alert(1)" in page.text
    assert "\\x1b]0;owned\\x07\\x00\\u202e\\ud800" in page.programs[0]
    assert set(page.tags) <= TAGS
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert all(character.isprintable() or character == "\n" for character in text)


@needs_charts
def test_tables_scroll_and_never_break_words(make_run: MakeRun) -> None:
    text = render_report(make_run([short("binary", 1)], done={"binary": outcome(0, 1)}))
    assert text.count("<table>") == text.count('<div class="scroll" tabindex="0">\n<table>') == 2
    assert '<td class="short">binary</td>' in text
    style = text[text.index("<style>") : text.index("</style>")]  # charts have long texts, and styles of their own
    rules = {names.strip(): rule for names, rule in re.findall(r"([^{}]+) \{([^{}]*)\}", style)}
    assert "overflow-x: auto" in rules[".scroll"]
    assert "nowrap" in rules["th, td.short"]
    cells = [rule for names, rule in rules.items() if re.search(r"\bt[dh]\b", names)]
    assert not any("anywhere" in rule or "break-all" in rule for rule in cells)


@needs_charts
def test_the_page_names_no_address_and_permits_no_script(make_run: MakeRun) -> None:
    text = render_report(make_run([update("binary", 1), update("binary", 2)]))
    assert "://" not in text
    assert all(value.startswith("#") for name, value in Page(text).attributes if name in ("href", "xlink:href", "src"))
    assert "default-src 'none'" in text


@needs_charts
@pytest.mark.slow
def test_the_same_folder_gives_the_same_page_with_ids_that_are_unique(make_run: MakeRun) -> None:
    run = make_run([update("binary", step) for step in range(1, 40)], [sample(1, "a")], {"binary": outcome(0, 39)})
    text = render_report(run)
    assert text == render_report(run)
    ids = [value for name, value in Page(text).attributes if name == "id"]
    assert len(ids) == len(set(ids))


@needs_charts
def test_charts_leave_the_settings_of_matplotlib_alone(make_run: MakeRun) -> None:
    import matplotlib

    before = matplotlib.rcParams.copy()
    render_report(make_run([short("binary", 1)]))
    assert matplotlib.rcParams.copy() == before


@needs_charts
def test_a_run_that_has_just_begun_says_so(make_run: MakeRun) -> None:
    page = Page(render_report(make_run(done={"sft": None})))
    assert "not finished" in page.text
    assert "phase sft has no evaluation on held-out problems" in page.text
    assert "metrics.jsonl is missing" in page.text
    assert "svg" not in page.tags
    assert "Learning curves" not in page.text
    assert "Programs from" not in page.text


@needs_charts
def test_numbers_that_cannot_be_drawn_leave_gaps(make_run: MakeRun) -> None:
    odd = [None, "x", True, [], {}, 10**400, -1e300, 1e-320, -1e30, 1e30]
    names = [line.name for chart in CHARTS for line in chart.lines if not line.held_out]
    rows: list[Any] = [update("binary", step, **dict.fromkeys(names, value)) for step, value in enumerate(odd, 1)]
    rows.append('{"phase": "binary", "step": 20, "seconds": NaN, "grad_norm": 1e999, "stages": {"parses": -Infinity}}')
    assert "<svg" in render_report(make_run(rows))


def test_damaged_lines_are_left_out_and_named(make_run: MakeRun) -> None:
    deep = "[" * 100_000
    rows = [update("sft", 1), "{oops", "7", "", '{"phase": 3, "step": 1}', '{"phase": "sft", "step": -1}', deep, "\x00"]
    history = read_history(make_run([*rows, update("sft", 2), '{"phase": "sf']))
    assert [point.row["step"] for point in history.updates] == [1, 2]
    damaged = [each for each in history.missing if "damaged" in each]
    assert damaged == [
        *(f"metrics.jsonl:{number} is damaged and was skipped" for number in (2, 3, 5, 6, 7)),
        "metrics.jsonl has 2 more damaged lines",
    ]


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000])
def test_a_damaged_outcome_is_no_outcome(make_run: MakeRun, text: str) -> None:
    history = read_history(make_run([update("sft", 1)], done={"sft": text}))
    assert history.phases[0].evaluations == ()
    assert any("phase" in each for each in history.missing)


def test_updates_count_on_from_phase_to_phase(make_run: MakeRun) -> None:
    rows = [update("sft", 1), update("sft", 2), update("binary", 1)]
    history = read_history(make_run(rows, done={"sft": outcome(0, 2), "binary": outcome(0, 1)}))
    assert [point.x for point in history.updates] == [1, 2, 3]
    assert [point.x for point in history.evaluations] == [0, 2, 2, 3]
    assert [(phase.name, phase.start, phase.updates) for phase in history.phases] == [("sft", 0, 2), ("binary", 2, 1)]


def test_evaluations_of_the_phase_are_read_from_its_own_file(make_run: MakeRun) -> None:
    run = make_run([update("binary", 1)], done={"binary": outcome(0, 1)})
    rows = [{"phase": "binary", "step": 0, "reward": 0.1}, {"phase": "binary", "step": 1, "reward": None}]
    (run.path / "phases/1-binary/evaluations.jsonl").write_text(lines(rows))
    assert [point.number("reward") for point in read_history(run).evaluations] == [0.1, None]


def sampled(history_of: Run) -> list[tuple[str, list[int]]]:
    """The problems whose programs a report shows, each with the updates of its samples."""
    programs = read_contents([history_of]).programs
    return [(each.problem, [point.row["step"] for _, point in each.samples]) for each in programs]


def test_held_out_programs_are_preferred_and_those_of_the_same_problem_are_early_and_late(make_run: MakeRun) -> None:
    rows = [update("sft", 1), update("binary", 1), update("binary", 2)]
    held_out = [
        sample(step, name, phase=phase, held_out=True, statement=f"Do {name}.", reward=reward)
        for phase, step, reward in (("sft", 0, 1.0), ("sft", 1, 0.0), ("binary", 0, 0.0), ("binary", 2, 0.5))
        for name in ("a", "b")
    ]
    outcomes = {"sft": outcome(0, 1), "binary": outcome(0, 2)}
    run = make_run(rows, [sample(1, "c"), *held_out, sample(2, "c")], outcomes)
    contents = read_contents([run])
    assert contents.kind == "held out"
    assert [(each.problem, each.statement) for each in contents.programs] == [("a", "Do a."), ("b", "Do b.")]
    for each in contents.programs:
        assert [(point.phase, point.row["step"]) for _, point in each.samples] == [("sft", 0), ("binary", 2)]


def test_without_held_out_programs_trained_problems_are_chosen_by_when_they_were_drawn(make_run: MakeRun) -> None:
    rows = [update("binary", step) for step in range(1, 11)]
    samples = [sample(1, "far"), sample(2, "near"), sample(3, "near"), sample(4, "middle")]
    run = make_run(rows, [*samples, sample(9, "middle"), sample(10, "far", reward=0.0)])
    assert sampled(run) == [("far", [1, 10]), ("middle", [4, 9])]
    assert read_contents([run]).kind == "trained on"


@needs_charts
def test_without_repeated_problems_the_latest_samples_are_shown_alone(make_run: MakeRun) -> None:
    samples = [sample(step, f"p{step}", f"print({step})") for step in range(1, 10)]
    run = make_run([short("binary", step) for step in range(1, 10)], samples)
    assert sampled(run) == [(f"p{step}", [step]) for step in range(5, 10)]
    assert "No problem was sampled at two times" in Page(render_report(run)).text


def test_each_phase_has_its_own_axis_and_a_panel_only_where_it_has_numbers(make_run: MakeRun) -> None:
    rows = [{"phase": "sft", "step": step, "steps": 160, "loss/sft": 2.0} for step in range(1, 161)]
    rows += [short("binary", step, reward=None) for step in range(1, 21)]
    drawings = {each.title: each for each in read_contents([make_run(rows)]).drawings}
    assert {title: [panel.phase for panel in each.panels] for title, each in drawings.items()} == {
        "Loss": ["sft"],
        "Programs that pass all tests": ["binary"],
    }
    (panel,) = drawings["Programs that pass all tests"].panels
    assert panel.updates == 20
    assert panel.curves[0].steps == tuple(range(1, 21))


def test_a_value_head_that_is_missing_has_no_curve(make_run: MakeRun) -> None:
    losses = {"loss/policy": 0.5, "loss/value": 0.0}
    (loss,) = read_contents([make_run([{"phase": "binary", "step": 1, **losses}])]).drawings
    assert [curve.metric for curve in loss.panels[0].curves] == ["loss/policy"]


def test_a_held_out_mean_has_an_interval_where_the_run_has_each_program(make_run: MakeRun) -> None:
    run = make_run([update("binary", 2)], done={"binary": outcome(0, 2)})
    rows = [
        {"phase": "binary", "step": 0, "reward": 0.25, "rewards": [0.0, 0.0, 1.0, 0.0]},
        {
            "phase": "binary",
            "step": 2,
            "reward": 0.5,
            "rewards": [1.0, "x"],
            "solved": [True, False],
            "all_tests_rate": 0.5,
        },
    ]
    (run.path / "phases/1-binary/evaluations.jsonl").write_text(lines(rows))
    (result,) = read_contents([run]).results
    before, after = result.reward
    assert before is not None
    assert after is not None
    assert 0 <= before.low <= 0.25 <= before.high <= 1
    assert after.value == 0.5
    assert after.low != after.low
    assert result.pass_rate[0] is None
    assert result.pass_rate[1] is not None
    assert result.pass_rate[1].low < 0.5 < result.pass_rate[1].high


@pytest.mark.parametrize("labels", [["a", "a", "b", "b"], ["a", "b", "c", "d"], ["a"], "aabb", [1, 1, 2, 2], None])
def test_a_held_out_mean_is_over_the_groups_that_the_run_recorded(make_run: MakeRun, labels: object) -> None:
    run = make_run([update("binary", 2)], done={"binary": outcome(2, 2)})
    solved = [1, 1, 1, 1, 0, 0, 0, 0]
    row = {
        "phase": "binary", "step": 2, "reward": 0.5, "rewards": solved, "all_tests_rate": 0.5, "solved": solved,
        "groups": labels,
    }  # fmt: skip
    (run.path / "phases/1-binary/evaluations.jsonl").write_text(lines([row]))
    (result,) = read_contents([run]).results
    rate, reward = result.pass_rate[-1], result.reward[-1]
    assert rate is not None
    assert reward is not None
    of_problems = rate_interval([[True, True], [True, True], [False, False], [False, False]])
    is_grouped = labels == ["a", "a", "b", "b"]
    assert (rate.high - rate.low > of_problems.high - of_problems.low) == is_grouped
    assert is_grouped or rate == of_problems
    assert (reward.high > 1) == is_grouped, "a mean of two groups says nothing"


def two_runs(make_run: MakeRun) -> tuple[Run, Run]:
    """Two runs with other settings and phases, of the same problems."""
    runs = []
    for name, phase in (("one", "binary"), ("two", "partial")):
        metrics = [short("sft", 1), *(short(phase, step) for step in (1, 2))]
        samples = [sample(step, "a", f"print({name!r})", phase=phase, held_out=True, statement="S.") for step in (0, 2)]
        run = make_run(metrics, samples, {"sft": outcome(0, 1), phase: outcome(0, 2)}, name)
        (run.path / "config.toml").write_text(f"seed = 1\n[ppo]\nepochs = {len(runs) + 1}\n")
        runs.append(run)
    (runs[1].path / "bench").mkdir()
    interval = {"value": 0.5, "low": 0.25, "high": 0.75, "n": 20}
    document = {"models": [{"model": "two", "problems": 10, "syntax_rate": interval, "reward": None}, 7]}
    (runs[1].path / "bench/bench.json").write_text(json.dumps(document))
    return runs[0], runs[1]


@needs_charts
def test_several_runs_stand_side_by_side(make_run: MakeRun) -> None:
    runs = two_runs(make_run)
    contents = read_contents(runs)
    assert contents.differing == {"ppo.epochs": [1, 2]}
    for run, steps in zip(runs, (3, 5), strict=True):
        with (run.path / "config.toml").open("a") as config:
            config.write(f"[rft]\nsteps = {steps}\n[binary]\nsteps = {steps}\n")
    assert list(read_contents(runs).differing) == ["binary.steps", "ppo.epochs", "rft.steps"]  # phases are unknown
    for run in runs:
        config = run.path / "config.toml"
        config.write_text('phases = ["sft", "binary"]\n' + config.read_text())
    assert list(read_contents(runs).differing) == ["binary.steps", "ppo.epochs"]
    (rate,) = (each for each in contents.drawings if each.title == "Programs that pass all tests")
    assert {panel.phase: [curve.label for curve in panel.curves] for panel in rate.panels} == {
        "sft": ["one", "one, held out", "two", "two, held out"],
        "binary": ["one", "one, held out"],
        "partial": ["two", "two, held out"],
    }
    assert {curve.run: curve.color for curve in rate.panels[0].curves} == {"one": 0, "two": 1}
    assert [(each.phase, each.run) for each in contents.results] == [
        ("sft", "one"), ("sft", "two"), ("binary", "one"), ("partial", "two"),
    ]  # fmt: skip
    (programs,) = contents.programs
    assert [run for run, _ in programs.samples] == ["one", "one", "two", "two"]
    page = Page(render_report(*runs))
    for part in (
        "Training runs one, two",
        "Settings that differ",
        "ppo.epochs",
        "50.0 [25.0, 75.0]",
        "two: config.toml",
    ):
        assert part in page.text
    assert "alert" not in page.text
    assert set(page.tags) <= TAGS


def test_json_has_what_the_page_shows_and_writes_nothing(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_runs(make_run)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # numbers need no charts
    before = sorted(tmp_path.rglob("*"))
    result = report("one", "two", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [each["run"] for each in found["runs"]] == ["one", "two"]
    assert found["differences"] == {"ppo.epochs": {"one": 1, "two": 2}}
    assert found["bench"][0]["metrics"] == {"syntax_rate": {"value": 0.5, "low": 0.25, "high": 0.75, "n": 20}}
    assert found["programs"]["problems"][0]["statement"] == "S."
    assert found["results"][0]["reward"][0] == {"value": 0.5, "low": None, "high": None, "n": 0}
    rate = next(each for each in found["charts"] if each["title"] == "Programs that pass all tests")
    assert rate["panels"][0]["curves"][0]["values"] == [0.25]
    assert sorted(tmp_path.rglob("*")) == before


def test_runs_of_one_name_are_told_apart_and_a_run_is_given_once(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = make_run([short("sft", 1)]), make_run([short("sft", 1)], name="elsewhere/trial")
    assert len(set(read_contents([run, other]).names)) == 2
    monkeypatch.chdir(tmp_path)
    assert "trial is given twice" in str(report(str(run.path), "trial").exception)
    assert "do not fit on one page" in str(report(*["trial"] * (MOST_RUNS + 1)).exception)


@needs_charts
def test_several_runs_of_strangers_are_text_too(make_run: MakeRun, tmp_path: Path) -> None:
    program = sample(1, HOSTILE, HOSTILE, held_out=True, statement=HOSTILE)
    run = make_run([short(HOSTILE, 1)], [program, {**program, "step": 2}], {"binary": outcome(0, 2)})
    other = make_run([short("binary", 1)], name="_<b>bold")
    for each in (run, other):
        (each.path / "config.toml").write_text(f"x = {json.dumps(HOSTILE[:-6] + each.name)}\n")
    (run.path / "bench").mkdir()
    (run.path / "bench/bench.json").write_text(json.dumps({"models": [{"model": HOSTILE}], "settings": HOSTILE}))
    text = render_report(run, other)
    page = Page(text)
    assert page.text.count("alert(1)") >= 6
    assert "_<b>bold" in page.text
    assert set(page.tags) <= TAGS
    assert "://" not in text
    assert all(character.isprintable() or character == "\n" for character in text)


@needs_charts
def test_the_command_writes_into_the_run_or_where_it_is_told(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run([short("sft", 1)])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/latest").write_text("trial\n")
    for arguments in ([], ["trial"], [str(run.path)]):
        result = report(*arguments)
        assert result.exit_code == 0, result.output
        assert "report.html" in result.stderr
        assert result.stdout == ""
        (run.path / "report.html").unlink()
    make_run([short("sft", 1)], name="other")
    assert "trial/comparison.html" in report("trial", "other").stderr
    assert report("trial", "--out", "here.html").exit_code == 0
    assert (tmp_path / "here.html").read_text().startswith("<!DOCTYPE html>")


def test_a_file_that_is_no_page_is_not_overwritten(make_run: MakeRun, tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    problems.write_text("{}\n")
    failed = report(str(make_run([update("sft", 1)]).path), "--out", str(problems)).exception
    assert "expected a name that ends in .html" in str(failed)
    assert problems.read_text() == "{}\n"


def test_no_run_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "Run: sce train" in str(report().exception)
    unknown = report("nope").exception
    assert "unknown training run 'nope'" in str(unknown)
    assert getattr(unknown, "exit_code", None) == 2


def test_a_missing_matplotlib_is_named_with_its_extra(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"matplotlib is not installed.*\[plots\]"):
        render_report(make_run([update("sft", 1)]))


@needs_charts
def test_the_readiness_report_and_the_warnings_of_training_are_shown(make_run: MakeRun) -> None:
    run = make_run([short("binary", step, all_tests_rate=0.0, scores=64) for step in range(1, 12)])
    facts = {"phase": "binary", "start": HOSTILE, "key": "", "completions": 8, "passed": [0, 0], "prompts": 8}
    facts |= {"levels": [16, 0, 0, 0, 0], "truncated": 0.0, "zero_variance": 1.0, "group": 8, "seconds": 1.0}
    (run.path / "readiness.json").write_text(json.dumps(facts))
    text = render_report(run)
    page = Page(text)
    assert "Readiness before RL" in page.text
    assert "pass@1 is below 1 %" in page.text
    assert "warning: binary update 10: none of 640 programs" in page.text
    assert set(page.tags) <= TAGS
    assert all(character.isprintable() or character == "\n" for character in text)


@needs_charts
def test_without_a_readiness_report_and_warnings_the_page_leaves_them_out(make_run: MakeRun) -> None:
    run = make_run([short("binary", 1)])
    assert "Readiness" not in (text := render_report(run))
    assert "Warnings" not in text
    (run.path / "readiness.json").write_text("{}")
    assert "readiness.json is damaged" in render_report(run)
