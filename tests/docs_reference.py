"""Writes docs/cli.md from the real ``--help`` of every command, and docs/settings.md from recipes and dataclasses.

    python tests/docs_reference.py

A test compares the committed pages with what this makes.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

from securecoderl_edge.cli import COMMANDS, sce
from securecoderl_edge.config import to_table
from securecoderl_edge.training.settings import TrainSettings, resolve

DOCS = Path(__file__).resolve().parent.parent / "docs"
WIDTH = 100
_CLI = """# Commands

For everyone who looks up an option. This page is generated from `--help`; a recipe's settings are on [their own
page](settings.md).

Commands print results on standard output, and progress and errors on standard error. Exit codes: 0 success, 1 failure,
2 usage error, 130 interrupted, 143 terminated (`sce train` saves first and exits with 130). `sce --debug COMMAND` shows
the traceback of an error.
"""
_SETTINGS = """# Settings

For everyone who writes a recipe or compares ours with the paper's. This page is generated from the code.

```console
$ sce train --set ppo.epochs=2 --set binary.steps=50 --dry-run
...
```

A setting comes from four places. A flag wins over `--set KEY=VALUE`, which wins over the recipe, which wins over the
default. `--recipe FILE.toml` reads your own recipe; without it, `sce train` uses `starter`. The run's `config.toml`
holds every setting that was used.

## The paper and the four recipes

The paper's values are those of its section 4; a dash means that it does not give one. The last column has the name in
TRL 1.16 (`SFTConfig`, `RLOOConfig`) or PEFT, where they have the same setting.

"""
_AFTER_TABLE = """
`starter` is tuned for the 4.8 M-parameter model `nano` on a CPU. The [study](study.md) uses its settings with other
phase lengths; no other recipe has results.
`qwen-0.5b` and `paper-v100` are untested: their memory is estimated, and neither has run on a GPU.

The paper gives the adapter's learning rate for PPO only. It trains PPO-cont for twice as many updates as the other
variants; `sce reproduce table3` with `starter` gives all variants equally many.

## All settings

Your own recipe starts from these defaults, not from `starter`. An old name of a setting is an error that gives the new
one (`rate_schedule` is now `lr_schedule`, `ppo.trace` is `ppo.gae_lambda`, and so on).
"""
# What the paper gives (its section 4 and Tables 1 and 3); everything else it leaves open.
_PAPER = {
    "model": "DeepSeek-Coder-1.3B-Instruct", "problems": "APPS+, stdin problems (7.4 k)", "lora.rank": "16",
    "lora.alpha": "32", "sft.steps": "3 epochs", "ppo.batch_size": "2", "ppo.learning_rate": "1e-06",
    "ppo.epochs": "4", "ppo.clip_range": "0.2", "ppo.kl_coefficient": "0.1", "ppo.temperature": "0.7",
    "binary.steps": "500", "partial.steps": "500", "reward.security_weight": "0.4", "reward.unparsable": "paper (0.40)",
    "phases": "sft,binary,partial",
}  # fmt: skip
_RECIPES = ("paper-v100", "qwen-0.5b", "smollm2", "starter")
_SIDE_BY_SIDE = (
    "model", "problems", "phases", "base_precision", "lora.rank", "lora.alpha", "sft.steps", "sft.batch_size",
    "sft.learning_rate", "binary.steps", "partial.steps", "ppo.batch_size", "ppo.samples_per_prompt", "ppo.advantage",
    "ppo.drop_zero_variance_groups", "ppo.epochs", "ppo.learning_rate", "lr_schedule", "ppo.clip_range",
    "ppo.kl_coefficient", "ppo.max_grad_norm", "ppo.temperature", "prompt.style", "prompt.max_tokens", "ppo.max_tokens",
    "reward.security_weight", "reward.unparsable", "reward.credit_rule", "reward.cpu_seconds",
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
    parts = [f"{_SETTINGS}{_recipes()}{_AFTER_TABLE}"]
    for name, schema in _tables():
        title = f"### [{name}]\n" if name else ""
        doc = (schema.__doc__ or "").strip().split("\n")[0]
        rows = "".join(_row(field, f"{name}.{field.name}" if name else field.name) for field in _plain_fields(schema))
        parts.append(f"{title}\n{doc}\n\n| key | default | meaning |\n|---|---|---|\n{rows}")
    return "\n".join(parts)


def _recipes() -> str:
    tables = [_flat(to_table(resolve(name, (), {}))) for name in _RECIPES]
    head = "".join(f" `{name}` |" for name in _RECIPES)
    lines = [f"| setting | paper |{head} in TRL |", f"|---|---|{'---|' * len(_RECIPES)}---|"]
    for key in _SIDE_BY_SIDE:
        cells = [_PAPER.get(key, "-"), *(_shown(table.get(key)) or "-" for table in tables)]
        trl = f"`{_TRL[key]}`" if key in _TRL else "-"
        lines.append(f"| `{key}` | {' | '.join(cells)} | {trl} |")
    return "\n".join(lines) + "\n"


def _flat(table: dict[str, typing.Any], prefix: str = "") -> dict[str, typing.Any]:
    flat: dict[str, typing.Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(value)
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
    default = _shown(field.default)
    shown = f"`{default}`" if default else ""
    choices = field.metadata["choices"]
    words = f" One of {', '.join(f'`{each}`' for each in choices)}." if choices else ""
    return f"| `{key}` | {shown} | {field.metadata['help'].replace('|', chr(92) + '|')}{words} |\n"


def _block(text: str) -> str:
    return f"```text\n{text}\n```\n"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
