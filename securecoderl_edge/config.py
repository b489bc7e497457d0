"""Settings as frozen dataclasses: one field is name, type, default, bounds and help of a flag and TOML key.

`commands/options.py` turns a dataclass into command-line flags; this module merges TOML files and
``key=value`` overrides. Precedence: flag, then override, then file, then default.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import re
import tomllib
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from securecoderl_edge.errors import SceError, UsageError

T = TypeVar("T")

MAX_SEED = 2**32 - 1  # the largest that torch and llama.cpp both take
# For a key of many parts the standard library takes quadratic memory.
_PARTS_OF_KEY = re.compile(r"""(?:\.[ \t]*+(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+)++""")
_MOST_PARTS = 100


# Of options that many commands have.
JSON_HELP, FORCE_HELP = "One JSON document on stdout.", "Overwrite files that exist."


def setting(
    default: Any,
    help: str,
    *,
    choices: Sequence[str] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    metavar: str | None = None,
    short: str | None = None,
) -> Any:
    """A dataclass field with the metadata of its flag; ``minimum`` and ``maximum`` are inclusive bounds."""
    metadata = {
        "help": help,
        "choices": tuple(choices),
        "minimum": minimum,
        "maximum": maximum,
        "metavar": metavar,
        "short": short,
    }
    return dataclasses.field(default=default, metadata=metadata)


def build(schema: type[T], values: Mapping[str, Any], where: str) -> T:
    """Build a (nested) settings dataclass from decoded TOML values, checking names, types and bounds.

    Args:
        schema: the dataclass; its nested dataclass fields are TOML tables.
        values: decoded values; missing ones take the default.
        where: the file or option they come from, for messages.

    Raises:
        UsageError: unknown key, wrong type, or a number or word outside what the field permits.
    """
    hints = typing.get_type_hints(schema)
    fields = {field.name: field for field in dataclasses.fields(schema)}  # type: ignore[arg-type]
    unknown = sorted(set(values) - set(fields))
    if unknown:
        raise UsageError(f"{where}: unknown setting {unknown[0]!r}; choose from {', '.join(sorted(fields))}")
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            if not isinstance(value, Mapping):
                raise UsageError(f"{where}: {name} must be a table of settings")
            arguments[name] = build(typing.cast(type, hint), value, f"{where}: {name}")
        else:
            arguments[name] = _checked(fields[name], hint, value, where)
    return schema(**arguments)


def to_table(settings: Any) -> dict[str, Any]:
    """The nested plain values of a settings dataclass, as a TOML file holds them; None is left out."""
    table: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            table[field.name] = to_table(value)
        elif value is not None:
            table[field.name] = list(value) if isinstance(value, tuple) else value
    return table


def to_toml(table: Mapping[str, Any]) -> str:
    """TOML text of a table of numbers, strings, booleans, lists of those, and tables of the same."""
    return "\n".join(_toml_lines(table, ())) + "\n"


def read_toml(path: Path) -> dict[str, Any]:
    """Decode a TOML file.

    Raises:
        UsageError: no such file.
        SceError: it is not TOML.
    """
    try:
        return toml_of(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (ValueError, RecursionError) as error:  # also text that is not UTF-8, or a number of thousands of digits
        raise SceError(f"{path}: not valid TOML ({error})") from None
    except OSError as error:
        raise SceError(f"{path}: {error.strerror}") from None


def toml_of(text: str) -> dict[str, Any]:
    """Decode TOML.

    Raises:
        ValueError, RecursionError: it is not TOML, or has a key of very many parts.
    """
    if any(parts[0].count(".") > _MOST_PARTS for parts in _PARTS_OF_KEY.finditer(text)):
        raise ValueError(f"a key of more than {_MOST_PARTS} parts")
    return tomllib.loads(text)


def apply_overrides(table: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A copy of ``table`` with ``key=value`` or ``table.key=value`` texts applied; values are TOML or text.

    Raises:
        UsageError: an override is not of that form.
    """
    merged = copy.deepcopy(table)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {override}: expected key=value, for example ppo.learning_rate=1e-4")
        try:
            value = toml_of(f"value = {text}")["value"]
        except (ValueError, RecursionError):
            value = _numbers(text)
        *tables, name = key.strip().split(".")
        target = merged
        for part in tables:
            target = target.setdefault(part, {})
            if not isinstance(target, dict):
                raise UsageError(f"--set {override}: {part} is a setting, not a table of settings")
        target[name] = value
    return merged


def _numbers(text: str) -> Any:
    """The list that numbers with commas stand for, else the text itself."""
    try:
        return [float(part) for part in text.split(",")] if "," in text else text
    except ValueError:
        return text


def _checked(field: dataclasses.Field[Any], hint: Any, value: Any, where: str) -> Any:
    options = [option for option in (typing.get_args(hint) or (hint,)) if option is not type(None)]
    name = f"{where}: {field.name}"
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
            raise UsageError(f"{name} must be a list of strings")
        wrong = [item for item in value if field.metadata.get("choices") and item not in field.metadata["choices"]]
        if wrong:
            raise UsageError(f"{name}: {wrong[0]!r} is not one of {', '.join(field.metadata['choices'])}")
        return tuple(value)
    several = [option for option in options if typing.get_origin(option) is tuple]
    if several and (isinstance(value, (list, tuple)) or several == options):
        members, one = typing.get_args(several[0]), "" if several == options else "one number or "
        if not isinstance(value, (list, tuple)) or len(value) != len(members):
            raise UsageError(f"{name} must be {one}{len(members)} numbers, found {value!r}")
        return tuple(_checked(field, kind, each, where) for kind, each in zip(members, value, strict=True))
    options = [option for option in options if option not in several]
    if float in options and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) not in options:
        kinds = " or ".join(option.__name__ for option in options)
        raise UsageError(f"{name} must be {kinds}, found {value!r}")
    choices, low, high = (field.metadata.get(key) for key in ("choices", "minimum", "maximum"))
    if choices and value not in choices:
        raise UsageError(f"{name} must be one of {', '.join(choices)}, found {value!r}")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        bounds = [f"at least {low}"] if low is not None else []
        bounds += [f"at most {high}"] if high is not None else []
        if (low is not None and value < low) or (high is not None and value > high):
            raise UsageError(f"{name} must be {' and '.join(bounds)}, found {value!r}")
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{name} must be a finite number, found {value!r}")
    return value


def _toml_lines(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in plain.items()]
    for key, value in table.items():
        if isinstance(value, Mapping):
            inner = (*path, _toml_key(key))
            lines += ["", f"[{'.'.join(inner)}]", *_toml_lines(value, inner)]
    return lines


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_value(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_toml_value(item) for item in value)}]"
    if isinstance(value, str):
        # A JSON string is a TOML basic string, but for surrogate pairs and the delete character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)
