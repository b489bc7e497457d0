"""Command-line flags generated from settings dataclasses."""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Callable
from typing import Any, TypeVar

import click

from securecoderl_edge.commands.names import MODEL, PROBLEMS, RECIPE, RUN
from securecoderl_edge.errors import UsageError
from securecoderl_edge.text import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])
_AUTO = "auto"
MODEL_VARIABLE = "SCE_MODEL"


def options_from(schema: type, *, keep_unset: bool = False, only: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Add one flag for each field of ``schema`` and pass the built dataclass as ``config``.

    With ``keep_unset`` the command receives ``given`` instead: a dictionary of the flags that were typed. It is for
    commands that merge them over a file, whose values the help cannot show; several schemas may add to it. ``only``
    selects some of the fields. Nested dataclasses get no flags; ``bool`` fields become
        ``--name``, or ``--name/--no-name`` if they are unset or true by default.
    """

    def decorate(function: F) -> F:
        hints = typing.get_type_hints(schema)
        flat = [field for field in dataclasses.fields(schema) if not dataclasses.is_dataclass(hints[field.name])]
        fields = [field for field in flat if not only or field.name in only]
        # A schema's own fields come before those that it inherits.
        fields.sort(key=lambda field: field.name not in schema.__annotations__)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            values = {field.name: kwargs.pop(field.name) for field in fields}
            if keep_unset:
                typed = {name: value for name, value in values.items() if value is not None}
                return function(*args, given={**kwargs.pop("given", {}), **typed}, **kwargs)
            return function(*args, config=schema(**values), **kwargs)

        decorated: Any = wrapper
        for field in reversed(fields):
            decorated = _option(field, hints[field.name], keep_unset)(decorated)
        return typing.cast(F, decorated)

    return decorate


def flags_of(config: Any) -> list[str]:
    """The flags that `options_from` would make this dataclass of, without those that have their default."""
    words = []
    for field in dataclasses.fields(config):
        value, flag = getattr(config, field.name), f"--{field.name.replace('_', '-')}"
        if value == field.default:
            continue
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        else:
            words += [flag, ",".join(value) if isinstance(value, tuple) else str(value)]
    return words


def output_formats(**formats: str) -> Callable[[F], F]:
    """Add one flag per format, with its help, and pass the given one as ``output``, or None."""

    def remember(ctx: click.Context, param: click.Parameter, is_given: bool) -> None:
        before = ctx.params.setdefault("output", None)
        if is_given and before is not None:
            raise UsageError(f"--{before} and --{param.name} exclude each other. Leave one of them out.")
        if is_given:
            ctx.params["output"] = param.name

    def decorate(function: F) -> F:
        for name, help in reversed(formats.items()):
            option = click.option(f"--{name}", is_flag=True, expose_value=False, callback=remember, help=help)
            function = option(function)
        return function

    return decorate


def gathered(schema: type, name: str) -> Callable[[F], F]:
    """Pass the parameters that are fields of ``schema`` as one; for the function itself, below all its options."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            values = {field.name: kwargs.pop(field.name) for field in dataclasses.fields(schema)}
            return function(*args, **{name: schema(**values)}, **kwargs)

        return typing.cast(F, wrapper)

    return decorate


class _CommaList(click.ParamType):  # type: ignore[type-arg]
    """A comma-separated list as a tuple of strings, each one of the allowed words."""

    name = "LIST"

    def __init__(self, choices: tuple[str, ...]) -> None:
        self.choices = choices

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        items = tuple(item.strip() for item in str(value).split(",") if item.strip())
        for item in items:
            if self.choices and item not in self.choices:
                hint = did_you_mean(item, self.choices)
                self.fail(f"{item!r} is not one of {', '.join(self.choices)}{hint and '.' + hint}", param, ctx)
        return items


# Of a settings schema, by the name of the field.
_NAMES_OF = {"model": MODEL, "problems": PROBLEMS, "recipe": RECIPE, "init": RUN}


def examples(*lines: str) -> str:
    """The end of a command's help: lines that a user can type."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


model_option = click.option(
    "-m",
    "--model",
    type=MODEL,
    metavar="MODEL",
    envvar=MODEL_VARIABLE,
    help="Model to use: a name that sce models lists, a run, a folder or a GGUF file (with a LoRA adapter: "
    f"BASE.gguf+LORA.gguf).  [default: {MODEL_VARIABLE}; else the latest run's export, or its policy; else the largest "
    "pulled model that fits the memory; else nano (or nano-c)]",
)


adapter_option = click.option(
    "--adapter",
    type=MODEL,
    metavar="RUN|FILE",
    help="LoRA adapter to apply to the model: a run or one of its phases, a GGUF file, or a folder in PEFT's format. "
    "Without a model, its base.",
)


class FiniteFloat(click.FloatRange):
    """A number within bounds; NaN and infinity are errors."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            number = float(value)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is not a number.", param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return super().convert(value, param, ctx)


class Integer(click.IntRange):
    """A whole number within bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            int(value)
        except (TypeError, ValueError, OverflowError):
            self.fail(f"{value!r} is not a whole number.", param, ctx)
        return super().convert(value, param, ctx)


class _NumberOrAuto(click.IntRange):
    """A number, or ``auto``, which becomes None."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == _AUTO:
            return None
        if not isinstance(value, int) and not str(value).lstrip("+-").isdecimal():
            self.fail(f"{value!r} is neither a number nor {_AUTO}.", param, ctx)
        return super().convert(value, param, ctx)


def _option(field: dataclasses.Field[Any], hint: Any, keep_unset: bool) -> Callable[[Any], Any]:
    flag = f"--{field.name.replace('_', '-')}"
    default = None if keep_unset else field.default
    kind, text = _parameter_type(field, hint), field.metadata["help"]
    if kind is bool:
        if default is not False:  # unset, or on
            flag += f"/--no-{flag[2:]}"
        return click.option(flag, field.name, is_flag=True, default=default, help=text)
    shown = ",".join(field.default) if isinstance(field.default, tuple) else field.default
    if shown not in (None, "") and not keep_unset:
        text = f"{text}  [default: {shown}]"
    flags = [field.metadata["short"], flag] if field.metadata["short"] else [flag]
    return click.option(*flags, field.name, type=kind, default=default, metavar=field.metadata["metavar"], help=text)


def _parameter_type(field: dataclasses.Field[Any], hint: Any) -> Any:
    if typing.get_origin(hint) is tuple:
        return _CommaList(field.metadata["choices"])
    kinds = [kind for kind in (typing.get_args(hint) or (hint,)) if kind is not type(None)]
    kind = kinds[0]
    if kind is str and field.name in _NAMES_OF:
        return _NAMES_OF[field.name]
    if field.metadata["choices"]:
        return click.Choice(field.metadata["choices"], case_sensitive=False)
    bounds = (field.metadata["minimum"], field.metadata["maximum"])
    if kind is float:
        return FiniteFloat(*bounds)
    if kind is int and (field.metadata["metavar"] or "").endswith(f"|{_AUTO}"):
        return _NumberOrAuto(*bounds)
    return Integer(*bounds) if kind is int and bounds != (None, None) else kind
