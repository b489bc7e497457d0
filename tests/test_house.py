"""Properties of the source tree itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from securecoderl_edge.config import read_toml

ROOT = Path(__file__).parent.parent
CORE, EXPORT, COMMANDS = ROOT / "securecoderl_edge", ROOT / "export", ROOT / "commands"


def sources(folder: Path) -> list[Path]:
    linked = {CORE / "commands", CORE / "export"}
    return [path for path in sorted(folder.rglob("*.py")) if not linked & set(path.parents)]


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        (CORE, ("securecoderl_edge.commands", "securecoderl_edge.export", "click")),
        (EXPORT, ("securecoderl_edge.commands", "click")),
    ],
)
def test_imports_point_from_commands_to_export_to_core(folder: Path, forbidden: tuple[str, ...]) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(folder)
        if path.name not in ("cli.py", "__main__.py", "api.py")
        for name in imports(path)
        if name.startswith(forbidden)
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", [CORE, EXPORT])
def test_the_library_prints_nothing(folder: Path) -> None:
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources(folder)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert calls == []


@pytest.mark.parametrize("folder", [CORE, EXPORT, COMMANDS])
def test_nothing_is_pickled_or_run_by_a_shell_or_trusted_from_a_hub(folder: Path) -> None:
    # The starter families *write* such programs, as text, to have them found.
    for path in sources(folder):
        if "families" in path.parts:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        modules = {name.split(".")[0] for name in imports(path)}
        assert not modules & {"pickle", "shelve", "marshal", "dill", "joblib"}, path
        keywords = {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword)}
        assert "trust_remote_code" not in keywords, path
        assert "shell" not in keywords, path


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom securecoderl_edge.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(sorted({'torch','numpy','rich','bandit','transformers','llama_cpp','gguf'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"


def test_every_command_has_the_help_line_that_the_group_shows() -> None:
    from securecoderl_edge.cli import COMMANDS as LINES
    from securecoderl_edge.cli import sce

    assert sorted(LINES) == sorted(path.stem for path in COMMANDS.glob("*.py") if path.stem in LINES)
    for name in LINES:
        command = sce.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        assert command.name == name
        assert command.help is not None
        assert command.help.splitlines()[0] == LINES[name]


def test_every_folder_of_the_package_is_in_the_wheel() -> None:
    settings = read_toml(ROOT / "pyproject.toml")["tool"]["setuptools"]
    inside = {file.parent.relative_to(ROOT) for file in sources(CORE) if file.name == "__init__.py"}
    names = {folder.as_posix().replace("/", ".") for folder in inside}
    assert names | set(settings["package-dir"]) == set(settings["packages"])
