"""Writes docs/reference: cli.md from the real ``--help`` of every command, settings.md from recipes and dataclasses.

    python tests/docs_reference.py

A test compares the committed pages with what this makes.
"""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mode

import click
import paper_settings
from click.testing import CliRunner

from securecoderl_edge.cli import COMMANDS, sce
from securecoderl_edge.config import to_table
from securecoderl_edge.training.phase_settings import PhaseSettings
from securecoderl_edge.training.recipe import BY_SIZE, load_recipe, resolve
from securecoderl_edge.training.settings import TrainSettings

DOCS = Path(__file__).resolve().parent.parent / "docs" / "reference"
WIDTH = 100
_CLI = """# Commands

For everyone who looks up an option. This page is generated from `--help`, which every command has. An option that
several commands have with the same words is [described once](#options-of-several-commands); a recipe's settings are on
[their own page](settings.md).

Commands print results on standard output, and progress and errors on standard error. Exit codes: 0 success, 1 failure,
2 usage error, 130 interrupted, 143 terminated (`sce train` saves first and exits with 130), 75 if the time of
`sce train --max-minutes` is over.
"""
_SHARED = "## Options of several commands\n"
# Of a command's help: its options, one a match; and the list of its commands, which follow on the page.
_OPTION = re.compile(r"^  -.*\n(?:(?!  -) {3,}\S.*(?:\n|$))*", re.MULTILINE)
_OPTIONS, _COMMANDS, _HELP = "\nOptions:\n", "\nCommands:\n", "--help"
_SETTINGS = """# Settings

For everyone who writes a recipe or compares ours with the paper's. This page is generated from the code.

```console
$ sce train --set ppo.epochs=2 --set binary.steps=50 --dry-run
...
```

A setting comes from four places. A flag wins over `--set KEY=VALUE`, which wins over the recipe, which wins over the
default. `--recipe FILE.toml` reads your own recipe; without it, `sce train` uses the one that
[fits the model](recipes.md). The run's `config.toml` holds every setting that was used.

## The recipes

In brackets: the name in TRL 1.16 (`SFTConfig`, `RLOOConfig`) or PEFT, where they have the same setting. The recipes of
the paper are [below](#the-papers-settings).

"""
_AFTER_TABLE = """
`starter` is tuned for the 4.8 M-parameter model `nano` on a CPU. The [study](../concepts/study.md) uses its settings
with other phase lengths. `instruct` is for models with a chat template, `base` for others.

## The paper's settings

`paper-exact` is the paper's experiment, with [results on a CPU](../concepts/paper-notes.md#the-papers-recipe-on-a-cpu)
for small models. `paper-v100` has the same model and data, and changes what we think hides the effect of partial
credit. Neither has run on a GPU with its model; [a few updates](../guides/gpu.md#measurements-on-an-h200) have, with
random weights. In both, `sce reproduce table3` starts PPO-cont from PPO-simple, as the paper does: it has twice the
updates.

{paper}
## All settings

Your own recipe starts from these defaults, not from `starter`. They are as `--set` takes them; a key without a
value has none.
"""
PAPER_RECIPES = (paper_settings.EXACT, paper_settings.IMPROVED)
_RECIPES = ("base", "instruct", "paper-exact", "paper-v100", "qwen-0.5b", "smollm2", "starter", "starter-c")
# Side by side; a variant is described by its differences.
_COLUMNS, _VARIANTS = ("base", "instruct", "smollm2", "starter"), {"qwen-0.5b": "instruct", "starter-c": "starter"}
# Recipes without a model of their own, and a model whose sizes are known.
_GENERAL, _SIZED = ("base", "instruct"), "Qwen/Qwen2.5-Coder-0.5B-Instruct"
_SIDE_BY_SIDE = (
    "model", "problems", "phases", "base_precision", "lora.rank", "lora.alpha", "sft.steps", "sft.batch_size",
    "sft.epochs", "sft.learning_rate", "binary.steps", "partial.steps", "ppo.batch_size", "ppo.samples_per_prompt",
    "ppo.advantage", "ppo.drop_zero_variance_groups", "ppo.epochs", "ppo.learning_rate", "lr_schedule",
    "ppo.clip_range", "ppo.kl_coefficient", "ppo.max_grad_norm", "ppo.temperature", "prompt.style",
    "prompt.max_tokens", "ppo.max_tokens",
    "reward.security_weight", "reward.unparsable", "reward.extract", "reward.credit_rule", "reward.cpu_seconds",
)  # fmt: skip
# Of RLOOConfig, GRPOConfig, SFTConfig and LoraConfig.
_TRL = {
    "lora.rank": "r", "lora.alpha": "lora_alpha", "sft.steps": "max_steps", "binary.steps": "max_steps",
    "partial.steps": "max_steps", "sft.learning_rate": "learning_rate", "ppo.learning_rate": "learning_rate",
    "ppo.samples_per_prompt": "num_generations", "ppo.epochs": "num_iterations", "lr_schedule": "lr_scheduler_type",
    "ppo.clip_range": "epsilon", "ppo.kl_coefficient": "beta", "ppo.max_grad_norm": "max_grad_norm",
    "ppo.temperature": "temperature", "ppo.max_tokens": "max_completion_length",
}  # fmt: skip


def pages() -> dict[Path, str]:
    """The text of each generated page."""
    return {DOCS / "cli.md": cli_page(), DOCS / "settings.md": settings_page()}


def cli_page() -> str:
    """Every command's help; options that several commands have in the same words are described once."""
    helps = {" ".join(words): f"{help_of(words)}\n" for words in commands()}
    shared = _shared_options(helps.values())
    parts = [
        _CLI,
        _block(help_of([]).partition(_COMMANDS)[0].rstrip("\n")),
        _SHARED,
        _block("".join(sorted(shared.values(), key=_flag)).rstrip("\n")),
    ]
    for name, text in helps.items():
        parts += [f"## sce {name}\n", *_command(name, text, shared)]
    return "\n".join(parts)


def _shared_options(helps: Iterable[str]) -> dict[str, str]:
    """By flag, the description that most commands have of it, if more than one has it."""
    same: dict[str, list[str]] = defaultdict(list)
    for option in (each for text in helps for each in _OPTION.findall(text.partition(_OPTIONS)[2])):
        same[_words(option)].append(option)
    shared: dict[str, str] = {}
    for words, options in sorted(same.items(), key=lambda item: -len(item[1])):
        if len(options) > 1 and _flag(words) != _HELP:
            usual = mode(map(_default, options))
            shared.setdefault(_flag(words), next(option for option in options if _default(option) == usual))
    return shared


def _command(name: str, text: str, shared: dict[str, str]) -> Iterator[str]:
    """One command's part of the page: its help without ``shared``, settings and the commands below it."""
    usage, _, options = text.partition(_COMMANDS)[0].partition(_OPTIONS)
    settings = {field.name.replace("_", "-") for field in _plain_fields(TrainSettings)} if name == "train" else set()
    left: list[str] = []
    also: list[str] = []
    flags: list[str] = []
    for option in _OPTION.findall(options):
        flag = _flag(option)
        if flag.removeprefix("--") in settings:
            flags.append(f"`{flag}`")
        elif _words(option) == _words(shared.get(flag, "")):
            default = _default(option) != _default(shared[flag])
            also.append(f"`{flag}`{f' ({_default(option)})' if default else ''}")
        elif flag != _HELP:
            left.append(option)
    yield _block("".join([usage.rstrip("\n"), *(["\n", _OPTIONS, *left] if left else [])]).rstrip("\n"))
    if flags:
        yield f"[Settings](settings.md#all-settings) with a flag: {', '.join(flags)}.\n"
    if also:
        yield f"[Also](#options-of-several-commands): {', '.join(also)}.\n"


def _flag(option: str) -> str:
    """The long name of an option: ``--model`` of ``-m, --model MODEL``."""
    match = re.search(r"--[\w-]+", option.partition("   ")[0]) or re.search(r"-\w", option)
    assert match, option
    return match[0]


def _words(option: str) -> str:
    """An option's description without its default and its range."""
    return re.sub(r"(?: \[(?:default:|x|[\d.e-]+<=)[^\]]*\])+$", "", " ".join(option.split()))


def _default(option: str) -> str:
    match = re.search(r"\[(default: [^\]]*)\]", " ".join(option.split()))
    return match[1] if match else "default: the recipe's"


def settings_page() -> str:
    """The recipes side by side, then every setting with its default."""
    paper = paper_settings.in_words(*(flat(to_table(resolve(name, (), {}))) for name in PAPER_RECIPES), value_in_words)
    parts = [f"{_SETTINGS}{_recipes()}{_AFTER_TABLE.replace('{paper}', paper)}"]
    of_a_phase = {_description(field) for field in dataclasses.fields(PhaseSettings)}
    for names, schema in _tables():
        title = f"### {', '.join(f'[{name}]' for name in names)}" if names else ""
        doc = (schema.__doc__ or "").strip().split("\n")[0]
        fields = _plain_fields(schema)
        if schema is not PhaseSettings and "steps" in {field.name for field in fields}:
            left_out = [field for field in fields if _description(field) in of_a_phase]
            fields = [field for field in fields if field not in left_out]
            doc += f" As in `[binary]`: {', '.join(f'`{field.name}`' for field in left_out)}."
        rows = "".join(_row(field, f"{names[0]}.{field.name}" if names else field.name) for field in fields)
        parts.append("\n\n".join(part for part in (title, doc, rows.rstrip("\n")) if part) + "\n")
    return "\n".join(parts)


def _recipes() -> str:
    tables = {name: _settings_of(name) for name in (*_COLUMNS, *_VARIANTS)}
    lines = [f"| setting |{''.join(f' `{name}` |' for name in _COLUMNS)}", f"|---|{'---|' * len(_COLUMNS)}"]
    same = []
    for key in _SIDE_BY_SIDE:
        cells = [value_in_words(tables[name].get(key)) or "-" for name in _COLUMNS]
        shown = f"`{key}` (`{_TRL[key]}`)" if key in _TRL else f"`{key}`"
        if len(set(cells)) == 1:
            same.append(f"{shown} {cells[0]}")
        else:
            lines.append(f"| {shown} | {' | '.join(cells)} |")
    lines += ["", f"The same in all four: {', '.join(same)}."]
    for name, other in _VARIANTS.items():
        mine, others = tables[name], tables[other]
        changed = [f"`{key}` {value_in_words(mine.get(key))}" for key in mine if mine.get(key) != others.get(key)]
        lines += ["", f"`{name}` is `{other}`, except for {', '.join(changed)}."]
    return "\n".join(lines) + "\n"


def _settings_of(recipe: str) -> dict[str, typing.Any]:
    """The settings of a recipe; those that depend on the model as the recipe has them."""
    if recipe not in _GENERAL:
        return flat(to_table(resolve(recipe, (), {})))
    own = {key: value for key, value in flat(load_recipe(recipe)).items() if value == BY_SIZE}
    return flat(to_table(resolve(recipe, (), {"model": _SIZED}))) | own | {"model": None}


def flat(table: dict[str, typing.Any], prefix: str = "") -> dict[str, typing.Any]:
    """Nested settings by their dotted names."""
    found: dict[str, typing.Any] = {}
    for key, value in table.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def value_in_words(value: object) -> str:
    """A value of a setting as text."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def help_of(words: list[str]) -> str:
    """What ``--help`` prints at a fixed width."""
    shown = CliRunner().invoke(sce, [*words, "--help"], prog_name="sce", terminal_width=WIDTH, max_content_width=WIDTH)
    return "\n".join(line.rstrip() for line in shown.output.splitlines())


def commands() -> Iterator[list[str]]:
    """The words of every command."""
    context = click.Context(sce)
    for name in COMMANDS:
        command = sce.get_command(context, name)
        yield [name]
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                yield [name, inner]


def _tables() -> Iterator[tuple[list[str], type]]:
    """The tables of settings with their names: several, if they have the same keys."""
    yield [], TrainSettings
    names: dict[type, list[str]] = defaultdict(list)
    for name, hint in typing.get_type_hints(TrainSettings).items():
        if dataclasses.is_dataclass(hint):
            names[typing.cast(type, hint)].append(name)
    yield from ((each, schema) for schema, each in names.items())


def _plain_fields(schema: type) -> list[dataclasses.Field[typing.Any]]:
    hints = typing.get_type_hints(schema)
    return [field for field in dataclasses.fields(schema) if not dataclasses.is_dataclass(hints[field.name])]


def _row(field: dataclasses.Field[typing.Any], key: str) -> str:
    default = field.default
    value = json.dumps(default, separators=(",", ":")) if isinstance(default, tuple) else value_in_words(default)
    shown = f"{key}={value}" if value else key
    text, choices = field.metadata["help"], field.metadata["choices"] or ()
    if not all(re.search(rf"(?<![\w-]){each}(?![\w-])", text) for each in choices):
        text += f" One of {', '.join(f'`{each}`' for each in choices)}."
    return f"* `{shown}`: {text}\n"


def _description(field: dataclasses.Field[typing.Any]) -> tuple[str, typing.Any, str]:
    return field.name, field.default, field.metadata["help"]


def _block(text: str) -> str:
    return f"```text\n{text}\n```\n"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
