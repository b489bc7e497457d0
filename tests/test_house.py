"""Properties of the source tree itself."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from places import ROOT
from slow_tests import slow_tests

from securecoderl_edge.config import read_toml

CORE, EXPORT, COMMANDS = ROOT / "securecoderl_edge", ROOT / "export", ROOT / "commands"
PACKAGE = "securecoderl_edge"

# What each room may import, from the ground up; docs/concepts/architecture.md has the table in words. A name stands for
# all that is in it; a module's row is the longest name that its own begins with. All may import `ALWAYS`.
ALWAYS = "errors text"
PACKAGE_ITSELF = ""  # its version
_CORE = "problems prompts models sandbox scoring training runs runtimes generation serving evaluation"
MAY_IMPORT = {
    "": "",
    "errors": "",
    "text": "",
    "config": "",
    "system": "",
    "languages": "",
    "problems": "languages system",
    "problems.starter": "problems.problem problems.problem_file languages",
    "problems.datasets": "problems.problem problems.problem_file languages system",
    "models": "languages system config",
    "sandbox": "languages system config",
    "sandbox.inside": "",
    "prompts": "languages problems models.tokenizer system",
    "scoring": "languages problems prompts.extraction sandbox system config",
    "runs": "languages models.adapters models.files prompts.styles system config",
    "training": "languages problems prompts models sandbox scoring runs system config",
    "training.update": "training.settings training.phase_settings training.memory training.parallel "
    "languages problems prompts models scoring system",
    "runtimes": "languages problems prompts models sandbox.levels runs system config",
    "generation": "languages problems prompts scoring runtimes system",
    "integrations": "problems prompts sandbox scoring",
    "serving": "languages generation scoring runtimes prompts problems system config",
    "evaluation": "languages problems prompts models sandbox.levels scoring runs runtimes system config",
    "evaluation.report": "evaluation training.phase_settings training.readiness training.warning_signs models runs "
    "scoring system config",
    "doctor": "languages models sandbox runtimes training.base training.memory training.recipe training.settings "
    "system",
    "export": "languages problems prompts models scoring runs runtimes evaluation system config",
    "api": f"{_CORE} languages export config",
    "commands": f"{_CORE} languages export doctor system config",
    "cli": "commands system.folders config",
    "__main__": "cli",
}
# Only these import what is behind a wall; everybody else goes through the room's own files.
WALLS = {"sandbox.inside": "sandbox"}
MOST_FLOORS = 9


def sources(folder: Path) -> list[Path]:
    linked = {CORE / "commands", CORE / "export"}
    return [path for path in sorted(folder.rglob("*.py")) if not linked & set(path.parents)]


def imports(path: Path) -> Iterator[str]:
    """Modules that a file imports anywhere, in its functions too; of ``from package import module`` the module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in _files() else node.module for name in names)


@cache
def _files() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for folder, prefix in ((CORE, PACKAGE), (EXPORT, f"{PACKAGE}.export"), (COMMANDS, f"{PACKAGE}.commands")):
        for path in sources(folder):
            parts = [prefix, *path.relative_to(folder).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def _imported() -> dict[str, frozenset[str]]:
    """What each module imports of the package, both named as in `MAY_IMPORT`."""

    def short(name: str) -> str:
        return name.removeprefix(PACKAGE).removeprefix(".")

    return {
        short(module): frozenset(short(name) for name in imports(path) if name.split(".")[0] == PACKAGE)
        for module, path in _files().items()
    }


def _is_in(module: str, room: str) -> bool:
    return module == room or (bool(room) and module.startswith(f"{room}."))


def _row(module: str) -> str:
    return max((room for room in MAY_IMPORT if _is_in(module, room)), key=len, default="nowhere")


def test_every_module_stands_in_a_room() -> None:
    assert [module for module in _imported() if _row(module) == "nowhere"] == []


def test_no_room_imports_one_above_it() -> None:
    wrong = []
    for module, targets in _imported().items():
        room = _row(module)
        allowed = [PACKAGE_ITSELF, *ALWAYS.split(), *MAY_IMPORT[room].split()]
        for target in targets:
            if not _is_in(target, room) and not any(_is_in(target, each) for each in allowed):
                wrong.append(f"{module} imports {target}")
    assert wrong == []


@pytest.mark.parametrize(("behind", "door"), WALLS.items())
def test_what_is_behind_a_wall_is_reached_through_its_room(behind: str, door: str) -> None:
    assert [
        f"{module} imports {target}"
        for module, targets in _imported().items()
        for target in targets
        if _is_in(target, behind) and not _is_in(module, door)
    ] == []


def test_the_page_on_the_architecture_has_the_same_table() -> None:
    page = (ROOT / "docs" / "concepts" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\* ((?:`[\w.]+`(?:, )?)+): ((?:`[\w.]+`(?:, )?)+|nothing)$", page, re.MULTILINE)
    shown = {room: set(names(cell)) for rooms, cell in rows for room in names(rooms)}
    unsaid = {"", "errors", "text", "api", "commands", "cli", "__main__"}
    assert shown == {room: set(allowed.split()) for room, allowed in MAY_IMPORT.items() if room not in unsaid}


def names(cell: str) -> list[str]:
    return re.findall(r"`([\w.]+)`", cell)


def test_the_table_itself_has_no_circle() -> None:
    # Rows within one room may import each other; between rooms a row only names rooms that never lead back.
    assert _floors(_between_rooms({room: allowed.split() for room, allowed in MAY_IMPORT.items()}))


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert _floors({module: set(targets) - {module} for module, targets in _imported().items()})


def test_the_house_has_few_floors() -> None:
    assert _floors(_between_rooms(_imported())) <= MOST_FLOORS


def _between_rooms(arrows: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """Arrows between modules as those between the rooms at the top."""
    rooms: dict[str, set[str]] = {}
    for module, targets in arrows.items():
        top = module.split(".")[0]
        rooms.setdefault(top, set()).update({target.split(".")[0] for target in targets} - {top})
    return rooms


def _floors(arrows: Mapping[str, set[str]]) -> int:
    """The longest chain of arrows, in rooms.

    Raises:
        graphlib.CycleError: they run in a circle.
    """
    height: dict[str, int] = {}
    for each in TopologicalSorter(arrows).static_order():
        height[each] = 1 + max((height[below] for below in arrows.get(each, ())), default=0)
    return max(height.values())


def test_the_top_of_the_package_can_be_taken_in_at_a_glance() -> None:
    modules = {path.name for path in CORE.glob("*.py")}
    folders = {path.name for path in CORE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert len(modules) <= 8
    assert len(folders - {"commands", "export"}) <= 14


@pytest.mark.parametrize(("files", "guest"), [("inside/*.py", ""), ("security_worker.py", "bandit")])
def test_what_runs_beside_untrusted_programs_imports_the_standard_library_alone(files: str, guest: str) -> None:
    """``guest`` is what a process is there for."""
    found = {f"{path.name}: {name}" for path in (CORE / "sandbox").glob(files) for name in imports(path)}
    assert found
    allowed = {*sys.stdlib_module_names, guest}
    assert [each for each in found if each.split(": ")[1].split(".")[0] not in allowed] == []


def test_training_and_runtimes_do_not_know_each_other() -> None:
    for one, other in (("training", "runtimes"), ("runtimes", "training")):
        allowed = [each for row, names in MAY_IMPORT.items() if _is_in(row, one) for each in names.split()]
        assert allowed
        assert [each for each in allowed if _is_in(each, other)] == []


@pytest.mark.parametrize("folder", [CORE, EXPORT])
def test_only_commands_know_click(folder: Path) -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for path in sources(folder)
        if path.name not in ("cli.py", "__main__.py") and "click" in {name.split(".")[0] for name in imports(path)}
    ]
    assert wrong == []


def test_an_init_holds_a_docstring_and_at_most_the_names_that_its_room_hands_on() -> None:
    faces = {"", "problems", "sandbox", "doctor"}
    for module, path in _files().items():
        if path.name == "__init__.py" and module.removeprefix(PACKAGE).removeprefix(".") not in faces:
            body = ast.parse(path.read_text(encoding="utf-8")).body
            assert len(body) == 1, path
            assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path


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
    for path in sources(folder):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        modules = {name.split(".")[0] for name in imports(path)}
        assert not modules & {"pickle", "shelve", "marshal", "dill", "joblib"}, path
        keywords = [node for node in ast.walk(tree) if isinstance(node, ast.keyword)]
        assert all(ast.unparse(node.value) == "False" for node in keywords if node.arg == "trust_remote_code"), path
        assert "shell" not in {node.arg for node in keywords}, path


def test_python_is_parsed_in_one_place_which_keeps_threads_apart() -> None:
    calls = {
        str(path.relative_to(ROOT))
        for folder in (CORE, EXPORT, COMMANDS)
        for path in sources(folder)
        if path.parent != CORE / "sandbox" / "inside" and "ast.parse(" in path.read_text(encoding="utf-8")
    }
    own_reward = "securecoderl_edge/scoring/own_reward.py"  # the user's own file, before there are threads
    assert calls - {own_reward} == {"securecoderl_edge/languages/python_source.py"}


def test_no_text_is_executed_outside_the_sandbox() -> None:
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in (CORE, EXPORT, COMMANDS)
        for path in sources(folder)
        if path.parent != CORE / "sandbox" / "inside"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec")
    ]
    own_reward = "securecoderl_edge/scoring/own_reward.py"  # the user's own file, in a process of its own
    assert [call for call in calls if not call.startswith(own_reward)] == []
    assert len(calls) == 1


def test_no_interpreter_that_is_started_imports_from_the_current_folder() -> None:
    """With ``-c`` and ``-m`` Python looks there first, unless ``-P`` comes before."""
    started = [
        [ast.unparse(word) for word in node.elts]
        for folder in (CORE, EXPORT, COMMANDS)
        for path in sources(folder)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.List, ast.Tuple)) and {"'-c'", "'-m'"} & set(map(ast.unparse, node.elts))
    ]
    interpreters = [words for words in started if words[0] == "sys.executable"]
    assert interpreters
    assert [words for words in interpreters if words[1] != "'-P'"] == []


def test_only_what_the_user_names_is_looked_for_in_a_network() -> None:
    """By the hub's client and pip; the others are the server, a cluster, and pairs of sockets."""
    clients = {"urllib.request", "http.client", "requests", "httpx", "aiohttp", "ftplib", "smtplib", "huggingface_hub"}
    found = {name: set(imports(path)) for name, path in _files().items()}

    def importers(wanted: set[str]) -> set[str]:
        names = {
            name
            for name, seen in found.items()
            if any(each == w or each.startswith(f"{w}.") for each in seen for w in wanted)
        }
        return {name.removeprefix(f"{PACKAGE}.") for name in names}

    assert importers(clients) == {"system.downloads", "system.hub"}
    assert importers({"ray"}) == {"system.cluster"}
    assert importers({"socket", "asyncio"}) == {
        "integrations.verifiers", "sandbox.selftest", "sandbox.worker", "scoring.own_reward", "serving.app",
        "serving.connections",
        "serving.score_service", "serving.server", "serving.service", "system.cluster", "training.record",
    }  # fmt: skip


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom securecoderl_edge.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'torch','numpy','rich','bandit','transformers','llama_cpp','gguf','starlette','uvicorn'}\n"
        "print(sorted(heavy & set(sys.modules)))"
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


def test_the_list_of_slow_tests_names_tests() -> None:
    found = {
        f"{file}::{node.name}"
        for file in {each.partition("::")[0] for each in slow_tests()}
        for node in ast.parse((ROOT / file).read_bytes()).body
        if isinstance(node, ast.FunctionDef)
    }
    assert slow_tests() <= found
