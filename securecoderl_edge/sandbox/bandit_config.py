"""Bandit's configuration of a project: ``[tool.bandit]`` of ``pyproject.toml``, an INI file ``.bandit``, or YAML.

Only scans of people's files obey it, never the reward. Of an INI file, what concerns Bandit's own output has no effect.
"""

from __future__ import annotations

import configparser
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from securecoderl_edge.config import toml_of
from securecoderl_edge.errors import SceError, UsageError, first_line
from securecoderl_edge.sandbox.security import LEVELS

# In the order in which a folder is asked for them.
NAMES = (".bandit", "pyproject.toml", "bandit.yaml", "bandit.yml")
CONFIG_SUFFIXES = (".toml", ".yaml", ".yml")
_LONGEST = 1 << 20
_LONGEST_YAML = 1 << 17  # its parser is slow
_LISTS = {"tests": "tests", "skips": "skips", "exclude_dirs": "exclude", "include": "include"}
_REFUSED = ("profile", "profiles", "baseline", "blacklist_calls", "blacklist_imports")


@dataclass(frozen=True)
class ScanRules:
    """What a scan of files looks for.

    Attributes:
        tests, skips: ids of checks to run, all if there are none, and of those to leave out.
        exclude, include: patterns of paths, as Bandit compares them; ``include`` names files in Python.
        options: Bandit's tables of options of checks, by name.
        nosec: whether comments ``# nosec`` silence findings.
        severity, confidence: the lowest that is reported.
    """

    tests: tuple[str, ...] = ()
    skips: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    nosec: bool = False
    severity: str = "LOW"
    confidence: str = "LOW"

    def for_worker(self) -> dict[str, Any]:
        """The rules that `bandit_scan` takes."""
        return {"tests": self.tests, "skips": self.skips, "options": self.options, "nosec": self.nosec}


def find_config(folder: Path) -> Path | None:
    """The file of a folder that has a configuration of Bandit, if any.

    Raises:
        SceError: ``pyproject.toml`` is not TOML.
    """
    for name in NAMES:
        path = folder / name
        if path.is_file() and (path.suffix != ".toml" or "bandit" in _toml(path).get("tool", {})):
            return path
    return None


def read_config(path: Path) -> ScanRules:
    """The rules in a file: TOML or YAML by its suffix, else INI.

    Raises:
        UsageError: no such file.
        SceError: it cannot be read, is not what its name says, or has what is not supported, which the message names.
    """
    return _from_table(path) if path.suffix in CONFIG_SUFFIXES else _from_ini(path)


def _from_table(path: Path) -> ScanRules:
    table = _toml(path).get("tool", {}).get("bandit") if path.suffix == ".toml" else _yaml(path)
    if table is None:
        raise UsageError(f"{path}: no table [tool.bandit]")
    if not isinstance(table, dict):
        raise SceError(f"{path}: expected settings by name")
    _refuse(path, table)
    lists: dict[str, Any] = {}
    for name, field_name in _LISTS.items():
        value = table.get(name) or []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise SceError(f"{path}: {name} must be a list of strings")
        lists[field_name] = tuple(value)
    options = {name: each for name, each in table.items() if isinstance(each, dict)}
    try:
        json.dumps(options)  # as the process that scans gets them
    except (TypeError, ValueError, RecursionError):
        raise SceError(f"{path}: options of checks must be texts, numbers, lists and tables of these") from None
    return ScanRules(**lists, options=options)


def _from_ini(path: Path) -> ScanRules:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(_text(path))
        table = dict(parser["bandit"])
    except (configparser.Error, KeyError) as error:
        raise SceError(f"{path}: not an INI file with a section [bandit] ({first_line(error)})") from None
    _refuse(path, table)
    base = _from_table(_beside(path, table["configfile"])) if table.get("configfile") else ScanRules()
    names = {"tests": "tests", "skips": "skips", "exclude": "exclude"}
    lists = {field_name: _listed(table.get(name, "")) for name, field_name in names.items()}
    return ScanRules(
        tests=base.tests + lists["tests"],
        skips=base.skips + lists["skips"],
        exclude=base.exclude + lists["exclude"],
        include=base.include,
        options=base.options,
        severity=_level(path, "level", table.get("level")),
        confidence=_level(path, "confidence", table.get("confidence")),
    )


def _beside(path: Path, name: str) -> Path:
    """The file that an INI file names: as Bandit, TOML or YAML, so that none leads back; of the same folder."""
    named = path.parent / name
    if not named.resolve().is_relative_to(path.parent.resolve()):
        raise SceError(f"{path}: configfile {name!r} is outside of its folder")
    if not named.is_file():
        raise SceError(f"{path}: configfile {name!r} is not a file")
    return named


def _listed(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


def _level(path: Path, name: str, value: str | None) -> str:
    """Bandit counts: 1 is low."""
    levels = dict(zip(("1", "2", "3"), LEVELS, strict=True)) | {each.lower(): each for each in LEVELS}
    found = "LOW" if value is None else levels.get(value.lower())
    if found is None:
        raise SceError(f"{path}: {name} must be low, medium, high, or 1 to 3, found {value!r}")
    return found


def _refuse(path: Path, table: dict[str, Any]) -> None:
    for name in _REFUSED:
        if table.get(name):
            raise SceError(f"{path}: {name} is not supported. Use tests and skips, and sce scan --baseline.")


def _toml(path: Path) -> dict[str, Any]:
    try:
        table = toml_of(_text(path))
    except (ValueError, RecursionError) as error:
        raise SceError(f"{path}: not valid TOML ({first_line(error)})") from None
    return table if isinstance(table.get("tool", {}), dict) else {}


def _yaml(path: Path) -> Any:
    import yaml  # type: ignore[import-untyped]

    text = _text(path, _LONGEST_YAML)
    try:
        # An alias can make a short text a huge or an endless one.
        if any(isinstance(each, yaml.AliasEvent) for each in yaml.parse(text, yaml.SafeLoader)):
            raise SceError(f"{path}: aliases of YAML (*name) are not supported. Repeat the values.")
        return yaml.safe_load(text) or {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SceError(f"{path}: not valid YAML ({first_line(error)})") from None


def _text(path: Path, longest: int = _LONGEST) -> str:
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(longest + 1)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise SceError(f"{path}: not UTF-8 text") from None
    except OSError as error:
        raise SceError(f"{path}: {error.strerror}") from None
    if len(text) > longest:
        raise SceError(f"{path}: too long for a configuration; the limit is {longest >> 10} Ki characters")
    return text
