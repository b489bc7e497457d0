"""What names a model, a run, a recipe or a set of problems on the command line, and how a shell completes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem


class _NameOrPath(click.ParamType):  # type: ignore[type-arg]
    """Text that the command resolves; a shell completes the known names and, with ``is_path``, files and folders."""

    def __init__(self, name: str, known: Callable[[], Iterable[str]], is_path: bool = True) -> None:
        self.name = name
        self._known = known
        self._is_path = is_path

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        items = [CompletionItem(name) for name in self._known() if name.startswith(incomplete)]
        # First, for bash forgets at it what came before, and lists files where no name begins so.
        return [CompletionItem(incomplete, type="file"), *items] if self._is_path else items


class _Path(click.Path):
    """A path. An empty text, as an unset variable leaves it, is none; it would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("an empty text is not a path", param, ctx)
        return super().convert(value, param, ctx)


def _runs() -> list[str]:
    from securecoderl_edge.runs import RUNS

    return sorted(path.parent.name for path in RUNS.glob("*/environment.json"))


def _names() -> list[str]:
    from securecoderl_edge.models.files import MODEL_NAMES
    from securecoderl_edge.models.stored import aliases

    return [*MODEL_NAMES, *aliases()]


def _pullable() -> list[str]:
    from securecoderl_edge.models.catalog import TO_PULL

    return [*TO_PULL]


def _removable() -> list[str]:
    from securecoderl_edge.models.stored import aliases, pulled

    return [*pulled(), *aliases()]


def _problem_sets() -> list[str]:
    from securecoderl_edge.problems.sources import built_in_sets

    return built_in_sets()


def _recipes() -> list[str]:
    from securecoderl_edge.training.recipe import recipe_names

    return recipe_names()


PATH, PATH_TEXT, FOLDER = _Path(path_type=Path), _Path(), _Path(path_type=Path, file_okay=False)
MODEL = _NameOrPath("MODEL", lambda: [*_names(), *_runs()])
STORED = _NameOrPath("NAME", _names, is_path=False)
PULLABLE = _NameOrPath("NAME", _pullable, is_path=False)
REMOVABLE = _NameOrPath("NAME", _removable, is_path=False)
PROBLEMS = _NameOrPath("FILE", _problem_sets)
RECIPE = _NameOrPath("NAME|FILE", _recipes)
RUN = _NameOrPath("RUN", _runs)
