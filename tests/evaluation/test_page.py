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
from securecoderl_edge.evaluation.report.charts import CHARTS, SIGN_NAMES
from securecoderl_edge.evaluation.report.page import render_report
from securecoderl_edge.evaluation.report.run_history import read_history
from securecoderl_edge.runs import Run
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
        metrics: list[Any] | None = None, samples: list[Any] | None = None, done: dict[str, Any] | None = None
    ) -> Run:
        run = Run(tmp_path / "runs" / "trial")
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


def report(*arguments: str) -> Result:
    return CliRunner().invoke(sce, ["report", *arguments])


@needs_charts
def test_a_finished_run_is_told_in_full(make_run: MakeRun) -> None:
    metrics = [update("sft", 1), update("sft", 2), *(update("binary", step) for step in range(1, 5))]
    run = make_run(metrics, [sample(1, "a"), sample(4, "a")], {"sft": outcome(0, 2), "binary": outcome(0, 4)})
    page = Page(render_report(run))
    for part in ("Training run trial", "nano", "2026-01-02", "A CPU, 2 cores, 8 GiB, Linux", "42", "it did best"):
        assert part in page.text
    assert "0.500 to 0.540" in page.text
    assert all(chart.title in page.text for chart in CHARTS)
    assert all(SIGN_NAMES[sign] in page.text for sign in SIGNS)
    assert all(stage in page.text for stage in STAGE_NAMES)
    assert "no numbers yet" not in page.text
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
    assert page.text.count("no numbers yet") == len(CHARTS) + 1
    assert "svg" not in page.tags


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


def test_samples_are_chosen_by_when_they_were_drawn(make_run: MakeRun) -> None:
    rows = [update("binary", step) for step in range(1, 11)]
    samples = [sample(1, "far"), sample(2, "near"), sample(3, "near"), sample(4, "middle")]
    history = read_history(make_run(rows, [*samples, sample(9, "middle"), sample(10, "far", reward=0.0)]))
    pairs = [(early.row["id"], early.x, late.x) for early, late in history.repeated]
    assert pairs == [("far", 1, 10), ("middle", 4, 9)]


@needs_charts
def test_without_repeated_problems_the_earliest_and_latest_samples_are_shown(make_run: MakeRun) -> None:
    samples = [sample(step, f"p{step}", f"print({step})") for step in range(1, 10)]
    page = Page(render_report(make_run([short("binary", step) for step in range(1, 10)], samples)))
    assert "No problem was sampled both early and late" in page.text
    assert "p1 and p5" in page.text
    assert "p5 and p9" in page.text


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
