"""Settings: one dataclass is flags, TOML schema and defaults."""

from __future__ import annotations

import tomllib
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.commands.options import options_from
from securecoderl_edge.config import apply_overrides, build, read_toml, setting, to_table, to_toml
from securecoderl_edge.errors import SceError, UsageError


@dataclass(frozen=True)
class Inner:
    rate: float = setting(0.5, "A rate.", minimum=0.0, maximum=1.0)


@dataclass(frozen=True)
class Settings:
    steps: int = setting(3, "How many.", minimum=1)
    name: str = setting("plain", "A name.", choices=("plain", "fancy"))
    words: tuple[str, ...] = setting(("a", "b"), "Some words.", choices=("a", "b", "c"))
    limit: int | None = setting(None, "A limit.", minimum=1)
    scale: float = setting(1.0, "A scale.", minimum=0.0)
    fast: bool = setting(False, "Be fast.")
    path: str | None = setting(None, "A path.", metavar="FILE")
    inner: Inner = field(default_factory=Inner)


@pytest.mark.parametrize("text", ["a=" + "[" * 20_000, "a=" + "1" * 200_000, "a=", "\ud800"])
def test_a_file_that_is_no_toml_is_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(SceError, match="not valid TOML"):
        read_toml(path)
    assert apply_overrides({}, [f"a={text}"]) == {"a": text}


def test_missing_values_take_their_defaults() -> None:
    assert build(Settings, {}, "file") == Settings()


def test_values_and_nested_tables_are_read() -> None:
    values = {"steps": 5, "words": ["c"], "limit": 2, "fast": True, "inner": {"rate": 0.25}}
    expected = Settings(steps=5, words=("c",), limit=2, fast=True, inner=Inner(0.25))
    assert build(Settings, values, "file") == expected


def test_a_whole_number_is_accepted_for_a_float() -> None:
    built = build(Settings, {"scale": 2}, "file")
    assert (built.scale, type(built.scale)) == (2.0, float)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"step": 1}, "file: unknown setting 'step'; choose from fast, inner, limit"),
        ({"steps": 0}, "file: steps must be at least 1, found 0"),
        ({"steps": 1.5}, "file: steps must be int, found 1.5"),
        ({"steps": True}, "file: steps must be int, found True"),
        ({"steps": "3"}, "file: steps must be int, found '3'"),
        ({"limit": "3"}, "file: limit must be int, found '3'"),
        ({"name": "other"}, "file: name must be one of plain, fancy, found 'other'"),
        ({"words": "a"}, "file: words must be a list of strings"),
        ({"words": ["d"]}, "file: words: 'd' is not one of a, b, c"),
        ({"scale": float("nan")}, "file: scale must be a finite number, found nan"),
        ({"scale": float("inf")}, "file: scale must be a finite number, found inf"),
        ({"inner": 3}, "file: inner must be a table of settings"),
        ({"inner": {"rate": 2.0}}, "file: inner: rate must be at least 0.0 and at most 1.0, found 2.0"),
        ({"inner": {"tempo": 2.0}}, "file: inner: unknown setting 'tempo'; choose from rate"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place_and_rule(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        build(Settings, values, "file")
    assert str(caught.value).startswith(message)


def test_settings_survive_toml() -> None:
    settings = Settings(steps=7, words=(), limit=4, scale=1e-6, path='quotes " and \\ and 🙂 \x7f\n', inner=Inner(1.0))
    assert build(Settings, tomllib.loads(to_toml(to_table(settings))), "file") == settings


VALUES = st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.lists(st.text())
KEYS = st.text()
TABLES = st.dictionaries(KEYS, VALUES | st.dictionaries(KEYS, VALUES | st.dictionaries(KEYS, VALUES)))


@given(TABLES)
def test_any_table_survives_toml(table: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(table)) == table


def test_a_missing_value_is_left_out_of_the_table() -> None:
    assert "limit" not in to_table(Settings())


@pytest.mark.parametrize("part", ["a.", "a . ", "'a b'.", '"a\\"b".', '"\\\\".'])
@pytest.mark.parametrize("line", ["{}b = 1", "[{}b]", "x = {{{}b = 1}}"])
def test_a_key_without_end_is_no_toml(tmp_path: Path, line: str, part: str) -> None:
    (tmp_path / "x.toml").write_text(line.format(part * 3_000))
    tracemalloc.start()
    try:
        with pytest.raises(SceError, match="not valid TOML"):
            read_toml(tmp_path / "x.toml")
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 1 << 20  # with all its beginnings: 36 MiB, and of a megabyte more than a machine has
    (tmp_path / "x.toml").write_text(line.format(part * 50))
    assert read_toml(tmp_path / "x.toml")


def test_a_missing_toml_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_toml(tmp_path / "x.toml")


@pytest.mark.parametrize("content", [b"a = ", b"a = '\xff'", b"a = 1\na = 2\n"])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.toml").write_bytes(content)
    with pytest.raises(SceError, match=r"x\.toml: not valid TOML"):
        read_toml(tmp_path / "x.toml")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("steps=5", {"steps": 5}),
        ("inner.rate=1e-4", {"inner": {"rate": 1e-4}}),
        ("name=fancy", {"name": "fancy"}),
        ("name='fancy'", {"name": "fancy"}),
        ("path=a=b", {"path": "a=b"}),
        ("fast=true", {"fast": True}),
        ("words=['a', 'b']", {"words": ["a", "b"]}),
        (" steps = 5", {"steps": 5}),
        ("path=", {"path": ""}),
    ],
)
def test_an_override_is_toml_or_else_text(override: str, expected: dict[str, Any]) -> None:
    assert apply_overrides({}, [override]) == expected


def test_later_overrides_win_and_the_table_stays_as_it_was() -> None:
    table = {"steps": 1, "inner": {"rate": 0.1, "deep": {"x": 1}}}
    merged = apply_overrides(table, ["steps=2", "steps=3", "inner.rate=0.2", "inner.deep.x=2"])
    assert merged == {"steps": 3, "inner": {"rate": 0.2, "deep": {"x": 2}}}
    assert table == {"steps": 1, "inner": {"rate": 0.1, "deep": {"x": 1}}}


@pytest.mark.parametrize("override", ["steps", "=5", " =5", "steps.rate=1"])
def test_an_override_of_another_form_is_a_usage_error(override: str) -> None:
    with pytest.raises(UsageError, match="--set"):
        apply_overrides({"steps": 1}, [override])


# Flags


def run(arguments: Sequence[str], *, keep_unset: bool = False) -> Any:
    """What a command with flags from `Settings` receives, or click's message when it is refused."""
    received: list[Any] = []

    @click.command()
    @options_from(Settings, keep_unset=keep_unset)
    def command(config: Settings | None = None, given: dict[str, Any] | None = None) -> None:
        received.append(given if keep_unset else config)

    result = CliRunner().invoke(command, list(arguments))
    return received[0] if result.exit_code == 0 and received else (result.exit_code, result.output)


def test_without_flags_a_command_gets_the_defaults() -> None:
    assert run([]) == Settings()


def test_each_field_is_a_flag() -> None:
    arguments = [
        "--steps",
        "4",
        "--name",
        "fancy",
        "--words",
        "a, c",
        "--limit",
        "9",
        "--scale",
        "2",
        "--fast",
    ]
    assert run([*arguments, "--path", "x"]) == Settings(4, "fancy", ("a", "c"), 9, 2.0, True, "x")


def test_only_typed_flags_are_given_when_they_are_merged_over_a_file() -> None:
    assert run([], keep_unset=True) == {}
    assert run(["--no-fast", "--steps", "3"], keep_unset=True) == {"fast": False, "steps": 3}


def test_several_schemas_add_to_the_typed_flags_and_fields_can_be_picked() -> None:
    received: list[dict[str, Any]] = []

    @click.command()
    @options_from(Settings, keep_unset=True, only=("steps", "fast"))
    @options_from(Inner, keep_unset=True)
    def command(given: dict[str, Any]) -> None:
        received.append(given)

    assert CliRunner().invoke(command, ["--rate", "0.1", "--steps", "2"]).exit_code == 0
    assert received == [{"rate": 0.1, "steps": 2}]
    assert CliRunner().invoke(command, ["--name", "fancy"]).exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["--steps", "0"],
        ["--steps", "x"],
        ["--name", "other"],
        ["--words", "a,d"],
        ["--limit", "0"],
        ["--scale", "-1"],
        ["--scale", "nan"],
        ["--scale", "inf"],
    ],
)
def test_a_wrong_flag_is_a_usage_error_that_names_it(arguments: list[str]) -> None:
    exit_code, output = run(arguments)
    assert exit_code == 2
    assert f"Invalid value for '{arguments[0]}'" in output


def test_help_shows_texts_and_defaults() -> None:
    _, output = run(["--help"])
    text = " ".join(output.split())
    for expected in (
        "How many. [default: 3]",
        "Some words. [default: a,b]",
        "--fast",
        "--path FILE",
    ):
        assert expected in text
    assert "A limit. [default" not in text
    assert "--no-fast" not in text
