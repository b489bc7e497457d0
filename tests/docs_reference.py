"""Writes docs/reference: cli.md from the real ``--help`` of every command, settings.md from recipes and dataclasses.

    python tests/docs_reference.py

A test compares the committed pages with what this makes.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from pathlib import Path

import click
import paper_settings
from click.testing import CliRunner

from securecoderl_edge.cli import COMMANDS, sce
from securecoderl_edge.config import to_table
from securecoderl_edge.training.recipe import BY_SIZE, load_recipe, resolve
from securecoderl_edge.training.settings import TrainSettings

DOCS = Path(__file__).resolve().parent.parent / "docs" / "reference"
WIDTH = 100
_CLI = """# Commands

For everyone who looks up an option. This page is generated from `--help`; a recipe's settings are on [their own
page](settings.md).

Commands print results on standard output, and progress and errors on standard error. Exit codes: 0 success, 1 failure,
2 usage error, 130 interrupted, 143 terminated (`sce train` saves first and exits with 130), 75 if the time of
`sce train --max-minutes` is over. `sce --debug COMMAND` shows the traceback of an error.
"""
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

The last column has the name in TRL 1.16 (`SFTConfig`, `RLOOConfig`) or PEFT, where they have the same setting.

"""
_AFTER_TABLE = """
`starter` is tuned for the 4.8 M-parameter model `nano` on a CPU; `starter-c` has the same rates for programs in C. The
[study](../concepts/study.md) uses the settings of `starter` with other phase lengths. `paper-exact` has
[results on a CPU](../concepts/paper-notes.md#the-papers-recipe-on-a-cpu), with small models. `instruct` is for models
with a chat template, `base` for others; `qwen-0.5b` is `instruct` with its model. `paper-exact` and `paper-v100` have
not run on a GPU with their models; [a few updates](../guides/gpu.md#measurements-on-an-h200) have, with random weights.

## The paper's settings

`paper-exact` is the paper's experiment. `paper-v100` has the same model and data, and changes what we think hides the
effect of partial credit. The paper's values are those of its section 4 and its tables; a dash means that it gives none.
In both, `sce reproduce table3` starts PPO-cont from PPO-simple, as the paper does: it has twice the updates.

{paper}
## All settings

Your own recipe starts from these defaults, not from `starter`.
"""
PAPER_RECIPES = (paper_settings.EXACT, paper_settings.IMPROVED)
_RECIPES = ("base", "instruct", "paper-exact", "paper-v100", "qwen-0.5b", "smollm2", "starter", "starter-c")
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
    """Every command's help."""
    parts = [_CLI, _block(help_of([]))]
    for words in commands():
        parts += [f"## sce {' '.join(words)}\n", _block(help_of(words))]
    return "\n".join(parts)


def settings_page() -> str:
    """The recipes side by side, then every setting with its default."""
    paper = paper_settings.table(*(flat(to_table(resolve(name, (), {}))) for name in PAPER_RECIPES), value_in_words)
    parts = [f"{_SETTINGS}{_recipes()}{_AFTER_TABLE.replace('{paper}', paper)}"]
    for name, schema in _tables():
        title = f"### [{name}]\n" if name else ""
        doc = (schema.__doc__ or "").strip().split("\n")[0]
        rows = "".join(_row(field, f"{name}.{field.name}" if name else field.name) for field in _plain_fields(schema))
        parts.append(f"{title}\n{doc}\n\n| key | default | meaning |\n|---|---|---|\n{rows}")
    return "\n".join(parts)


def _recipes() -> str:
    tables = [_settings_of(name) for name in _RECIPES]
    head = "".join(f" `{name}` |" for name in _RECIPES)
    lines = [f"| setting |{head} in TRL |", f"|---|{'---|' * len(_RECIPES)}---|"]
    for key in _SIDE_BY_SIDE:
        cells = [value_in_words(table.get(key)) or "-" for table in tables]
        trl = f"`{_TRL[key]}`" if key in _TRL else "-"
        lines.append(f"| `{key}` | {' | '.join(cells)} | {trl} |")
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


def _tables() -> Iterator[tuple[str, type]]:
    yield "", TrainSettings
    hints = typing.get_type_hints(TrainSettings)
    for field in dataclasses.fields(TrainSettings):
        if dataclasses.is_dataclass(hints[field.name]):
            yield field.name, hints[field.name]


def _plain_fields(schema: type) -> list[dataclasses.Field[typing.Any]]:
    hints = typing.get_type_hints(schema)
    return [field for field in dataclasses.fields(schema) if not dataclasses.is_dataclass(hints[field.name])]


def _row(field: dataclasses.Field[typing.Any], key: str) -> str:
    default = value_in_words(field.default)
    shown = f"`{default}`" if default else ""
    choices = field.metadata["choices"]
    words = f" One of {', '.join(f'`{each}`' for each in choices)}." if choices else ""
    return f"| `{key}` | {shown} | {field.metadata['help'].replace('|', chr(92) + '|')}{words} |\n"


def _block(text: str) -> str:
    return f"```text\n{text}\n```\n"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
