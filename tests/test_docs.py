"""The pages: what is made from the code is what the code makes, and what is run is what stands there."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import docs_blocks
import docs_reference
import docs_session
import paper_settings
import pytest
from docs_blocks import Block, Command, matches, read_blocks, run_block
from places import ROOT

from securecoderl_edge.commands.data_check import CheckConfig
from securecoderl_edge.commands.score_options import ScoreConfig
from securecoderl_edge.config import build, to_table
from securecoderl_edge.generation import answers
from securecoderl_edge.problems.datasets.importing import FORMATS
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.problems.starter.splits import SPLITS
from securecoderl_edge.sandbox import limits, security_worker, selftest
from securecoderl_edge.sandbox.inside import confinement, notary, supervision, testprocess
from securecoderl_edge.sandbox.limits import TRAINING_LIMITS, Limits
from securecoderl_edge.serving import serve_settings
from securecoderl_edge.training.recipe import load_recipe, resolve
from securecoderl_edge.training.settings import RewardSettings, TrainSettings

PAGES = sorted((ROOT / "docs").rglob("*.md"))
SECURITY = ROOT / "SECURITY.md"


def test_generated_pages_are_up_to_date() -> None:
    for path, text in docs_reference.pages().items():
        assert path.read_text(encoding="utf-8") == text, "run: python tests/docs_reference.py"


def test_every_setting_of_the_papers_recipe_is_the_papers_or_has_a_reason() -> None:
    exact, improved = (docs_reference.flat(to_table(resolve(name, (), {}))) for name in docs_reference.PAPER_RECIPES)
    assert exact.keys() | improved.keys() == paper_settings.ROWS.keys() | paper_settings.WITHOUT_EFFECT
    for key, row in paper_settings.ROWS.items():
        assert row.paper or row.ours, key
        assert bool(row.improved) == (exact.get(key) != improved.get(key)), key
        if row.paper[:1].isdigit() and key != "reward.unparsable":
            assert float(row.paper.split()[0]) == exact[key], key


def test_a_default_on_the_page_of_settings_is_one_that_set_takes() -> None:
    shown = re.findall(
        r"^\* `([\w.]+=.+?)`", docs_reference.settings_page().partition("## All settings")[2], re.MULTILINE
    )
    assert len(shown) > 60
    for each in shown:
        key, value = each.split("=", 1)
        settings = docs_reference.flat(to_table(resolve("starter", (each,), {})))
        found = settings[key]
        assert (json.loads(value) if isinstance(found, list) else value) in (
            found,
            docs_reference.value_in_words(found),
        )


def test_an_option_of_several_commands_is_described_once_and_by_each() -> None:
    page = docs_reference.cli_page()
    shared = re.findall(
        r"^  .*?(--[\w-]+)", page.split("## Options of several commands")[1].split("## sce")[0], re.MULTILINE
    )
    assert len(shared) == len(set(shared)) > 20
    for part in page.split("\n## sce ")[1:]:
        name, text = part.split("\n", 1)
        of_command = set(
            re.findall(r"^  (?:-\w, )?(--[\w-]+|-\w\b)", docs_reference.help_of(name.split()), re.MULTILINE)
        )
        of_page = set(re.findall(r"^  (?:-\w, )?(--[\w-]+|-\w\b)|`(--[\w-]+)`", text, re.MULTILINE))
        assert {one or other for one, other in of_page} >= of_command - {"-h", "--help"}, name


def test_every_page_is_in_the_menu_and_every_entry_is_a_page() -> None:
    menu = re.findall(r"[a-z0-9/-]+\.md\b", (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:")[2])
    assert sorted(menu) == sorted(str(page.relative_to(ROOT / "docs")) for page in PAGES)


def test_every_format_of_data_sets_is_on_its_page() -> None:
    page = (ROOT / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\* (`.*?`):", page.partition("## Public sets")[2], re.MULTILINE)
    assert sorted(re.findall(r"`([\w-]+)`", " ".join(rows))) == sorted(FORMATS)


def test_the_table_of_built_in_sets_is_true() -> None:
    page = (ROOT / "docs" / "guides" / "datasets.md").read_text(encoding="utf-8")
    rows = [re.split(r" *\| *", line.strip("| ")) for line in page.splitlines() if line.startswith("| `starter:")]
    sizes = {name: int(row[1].replace(",", "")) for row in rows for name in re.findall(r"starter:([\w-]+)", row[0])}
    assert sizes == {split: len(load_problems(f"starter:{split}")) for split in SPLITS}


@pytest.mark.parametrize("page", [ROOT / "README.md", SECURITY, *PAGES], ids=lambda page: page.stem)
def test_every_session_of_a_page_can_be_read_and_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for block in read_blocks(text):
        assert block.commands
        assert all(command.text.strip() for command in block.commands)
    for target in re.findall(r"(?:\]\(|src(?:set)?=\")(?!https?:)([^)#\"]+)", text):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def words_of(page: Path) -> str:
    return " ".join(page.read_text(encoding="utf-8").split())


def test_every_test_and_file_that_the_page_on_security_names_exists() -> None:
    text = words_of(SECURITY)
    named = re.findall(r"`((?:\w+/)*test_\w+\.py)(?: -k (\w+))?`", text)
    assert len(named) > 50
    assert len(named) == text.count("test_")
    for name, word in named:
        if name != "test_x.py":
            found = [path for folder in ("tests", "tests/sandbox") if (path := ROOT / folder / name).exists()]
            assert len(found) == 1, name
            functions = re.findall(r"^def (test_\w+)", found[0].read_text(encoding="utf-8"), re.MULTILINE)
            assert any(word in function for function in functions), f"{name} -k {word}"
    for name in re.findall(r"`([\w.-]+/[\w./-]+\.(?:py|yml|toml))`", text):
        path = ROOT / name if name.startswith((".", "tests/")) else ROOT / "tests" / name
        assert path.exists() or path.name.startswith("test_"), name


def test_every_promise_of_the_page_on_security_names_its_test() -> None:
    without = {"test", "---"}
    for table in re.findall(r"(?:^\|.*\n)+", SECURITY.read_text(encoding="utf-8"), re.MULTILINE):
        rows = [re.split(r" *\| *", line.strip("| \n")) for line in table.splitlines()]
        if rows[0][-1] == "test":
            for *cells, tests in rows:
                assert "test_" in tests or tests in without or "**not stopped**" in f"{cells} {tests}", cells


def test_limits_on_the_page_on_security_are_those_of_the_code() -> None:
    text, shown = SECURITY.read_text(encoding="utf-8"), dict[str, tuple[float, float, int]]()
    for names, *cells in re.findall(r"^\| (.*) \| ([\d.]+) s \| (\d+) s \| ([\d,]+) MiB \|$", text, re.MULTILINE):
        cpu, wall, memory = (float(cell.replace(",", "")) for cell in cells)
        shown |= dict.fromkeys(re.findall(r"`(.+?)`", names), (cpu, wall, int(memory)))
    usual, check = Limits(), CheckConfig()
    assert shown == {
        **dict.fromkeys(("sce train", "sce serve --reward"), of(TRAINING_LIMITS)),
        **{
            name: of(build(RewardSettings, load_recipe(name).get("reward", {}), name))
            for name in docs_reference._RECIPES
        },
        **dict.fromkeys(("sce bench", "sce export --bench", "sce reproduce", "sce generate", "sce serve"), of(usual)),
        "sce score": of(ScoreConfig().limits()),
        "sce data check": (check.cpu_seconds, 3 * check.cpu_seconds, usual.memory_mib),
        "sce doctor": of(selftest.LIMITS),
    }
    assert of(TrainSettings().reward) == of(TRAINING_LIMITS)


def of(limits: Any) -> tuple[float, float, int]:
    return limits.cpu_seconds, limits.wall_seconds, limits.memory_mib


def test_numbers_on_the_page_on_security_are_those_of_the_code() -> None:
    text, hostile = words_of(SECURITY), ROOT / "tests" / "sandbox" / "hostile_c"
    for fact in (
        f"{Limits().output_bytes >> 20} MiB of standard output",
        f"{Limits().output_bytes * limits.OUTPUTS_OF_A_PROGRAM >> 20} MiB of outputs in all tests of a program",
        f"{supervision.MOST_THREADS} threads (checked every {round(1000 * supervision.LOOK_SECONDS)} ms, and at each",
        f"{testprocess.MOST_PENDING_SIGNALS} pending signals, {testprocess.MOST_DESCRIPTORS} open files, "
        f"{testprocess.STACK_BYTES >> 20} MiB of stack",
        f"Compiling may take {limits.COMPILE_CPU_SECONDS:g} s and {limits.COMPILE_MEMORY_MIB:,} MiB",
        f"filter 1, {security_worker.MEMORY_BYTES >> 30} GiB, {security_worker.SCAN_CPU_SECONDS:g} s of CPU time",
        f"(without tests: {answers._COMPILE_ONLY_SECONDS:g} s, also wall)",
        f"{notary.MOST_NOTES} different notes",
        f"{serve_settings.MAX_PROGRAMS} programs of {serve_settings.MAX_TESTS} tests and "
        f"{serve_settings.MAX_TESTS} security tests, {serve_settings.MAX_SECONDS:g} s, "
        f"{serve_settings.LONGEST_ASSERTION:,} characters per assertion",
        f"at least {serve_settings._SHORTEST_KEY} characters",
        *(f"`{path}`" for path in confinement.READABLE),
    ):
        assert fact in text, fact
    on_c = (ROOT / "docs" / "concepts" / "c.md").read_text(encoding="utf-8")
    files, for_analyzers = (len(list(folder.glob("*.c"))) for folder in (hostile, hostile / "analyzers"))
    assert f"has {files} malicious files with verdicts, and {for_analyzers} for the analyzers" in on_c
    assert f"`test_hostile_c.py` has {files} malicious files, `test_analyzers.py` {for_analyzers} for analyzers" in text
    assert [len(each) for each in (selftest.ATTACKS, selftest.ATTACKS_IN_C, selftest.ATTACKS_ON_BOARD)] == [10, 4, 2]
    assert "ten attacks on canaries, four in C and two on a board" in text


def test_a_session_is_commands_with_their_outputs() -> None:
    (block,) = read_blocks("# Page\n\n<!-- run: other numbers -->\n```console\n$ a \\\n  b\n1\n$ c\n```\n")
    assert block.commands == [Command("a \\\n  b", "1"), Command("c", "")]
    assert block.other_numbers
    (here,) = read_blocks("```console\n$ cat > f <<'EOF'\nx\n$ y\nEOF\n$ cat f\nx\n```\n")
    assert [command.output for command in here.commands] == ["", "x"]
    assert read_blocks("```python\nprint(1)\n```\n") == []


@pytest.mark.parametrize(("said", "fails"), [("3 passed", False), ("4 passed", True)])
def test_another_program_is_accepted_and_another_verdict_is_not(tmp_path: Path, said: str, fails: bool) -> None:
    command = Command("printf '3 passed\nprint(2)\n'", f"{said}\nprint(1)")
    assert bool(run_block(Block(1, [command]), tmp_path, dict(os.environ)))
    assert bool(run_block(Block(1, [command], another_program=True), tmp_path, dict(os.environ))) is fails


def test_a_block_that_needs_a_missing_program_is_left_out_with_the_reason() -> None:
    text = "<!-- run: needs {} -->\n```console\n$ a\n```\n"
    assert [read_blocks(text.format(name))[0].skipped for name in ("sh", "no-such-tool")] == [
        "", "no-such-tool is not installed",
    ]  # fmt: skip


def test_an_unknown_directive_is_an_error() -> None:
    with pytest.raises(ValueError, match="no such directive: sometimes"):
        read_blocks("<!-- run: sometimes -->\n```console\n$ a\n```\n")


@pytest.mark.parametrize(
    ("found", "expected", "other_numbers", "is_match"),
    [
        ("a  b\n", "a b", False, True),
        ("took 1.5 s\n", "took 2 s", False, False),
        ("took 1.5 s\n", "took 2 s", True, True),
        ("a\nb\nc\n", "a\n...", False, True),
        ("a\nb\nc\n", "...\nc", False, True),
        ("a\nb\nc\n", "a\n...\nd", False, False),
        ("kept step 3: why\n", "kept step 3: ...", False, True),
        ("", "a", False, False),
        ("more\n", "", False, False),
    ],
)
def test_outputs_are_compared_but_for_what_the_page_leaves_open(
    found: str, expected: str, other_numbers: bool, is_match: bool
) -> None:
    assert matches(found, expected, other_numbers) is is_match


def test_a_session_that_says_something_else_is_told(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin"}

    def failure(text: str) -> str:
        (block,) = read_blocks(f"```console\n{text}\n```\n")
        return run_block(block, tmp_path, environment)

    assert failure("$ echo 1\n1") == ""
    assert "but the page says" in failure("$ echo 1\n2")
    assert "exit status 3" in failure("$ exit 3")


def test_blocks_of_a_page_share_a_folder_that_is_gone_afterwards(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ echo 1 > f\n```\n\n```console\n$ cat f\n1\n```\n\n"
        "<!-- run: no, it is late -->\n```console\n$ exit 1\n```\n"
    )
    assert docs_blocks.run_page(page) == (2, ["page.md:11: it is late"], [])
    assert not (tmp_path / "f").exists()


def test_the_recorded_session_is_what_its_commands_print(tmp_path: Path) -> None:
    def lines(svg: str) -> list[str]:
        return re.findall(r"<text [^>]*>([^<]*)</text>", svg)

    committed = (docs_session.GALLERY / "score.svg").read_text(encoding="utf-8")
    assert lines(committed) == lines(docs_session.record(tmp_path, "score")), "run: python tests/docs_session.py"
    assert any("reward" in line for line in lines(committed))
