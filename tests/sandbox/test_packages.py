"""Programs can neither import nor read installed packages; the standard library is there in full.

Each attack prints 42 only if it succeeds. As the user who runs the tests and, where that is root, as an ordinary user.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from other_users import as_whom, open_house, python_for

from securecoderl_edge.sandbox import describe_levels
from securecoderl_edge.sandbox.inside import library

__all__ = ["open_house"]  # a fixture
pytestmark = pytest.mark.timeout(900)

# Run by the interpreter of the programs: its standard library, and the folders with packages that it finds.
FACTS = """
import glob, json, os, sys
home = os.path.dirname(os.__file__)
patterns = [f"{home}/*-packages", "/usr/lib/python3*/*-packages", "/usr/local/lib/python3*/*-packages",
            "/usr/lib/*/platform/*/lib/python3*/*-packages", "WHO/lib/python3*/*-packages"]
folders = [each for pattern in patterns for each in glob.glob(pattern) if os.listdir(each)]
modules = [file for folder in folders for file in sorted(glob.glob(f"{folder}/*/__init__.py"))[:9]]
wheels = glob.glob(f"{home}/ensurepip/_bundled/*.whl")
natives = [file for folder in folders for file in glob.glob(f"{folder}/**/*.so", recursive=True)[:1]]
print(json.dumps({"home": home, "folders": folders, "modules": modules, "wheels": wheels, "natives": natives}))
"""
# FOLDERS, MODULES, WHEELS and NATIVES are lists of paths, HOME is the folder of the standard library.
BEGIN = """
import ctypes, glob, importlib, importlib.machinery, importlib.metadata, importlib.util, os, runpy, site, sys, zipimport
HOME, FOLDERS, MODULES, WHEELS, NATIVES = {facts}
def attempt(deed, values):
    for value in values:
        try:
            deed(value)
        except (PermissionError, FileNotFoundError, ModuleNotFoundError, zipimport.ZipImportError, KeyError):
            continue
        except BaseException as error:  # of the module that was found
            if "cannot open" in str(error):
                continue
        print(42, value)
def name_of(file):
    return os.path.basename(os.path.dirname(file))
"""
ATTACKS = {
    "the path of modules": """
for folder in FOLDERS:
    sys.path.insert(0, folder)
attempt(__import__, [name_of(file) for file in MODULES])""",
    "the path of a package": """
import json
json.__path__ += FOLDERS
attempt(lambda file: __import__(f"json.{name_of(file)}"), MODULES)""",
    "forgotten finders": """
sys.path += FOLDERS
sys.path_importer_cache.clear()
importlib.invalidate_caches()
attempt(__import__, [name_of(file) for file in MODULES])""",
    "a loader of text": """
attempt(lambda file: importlib.machinery.SourceFileLoader("x", file).get_code("x"), MODULES)""",
    "a loader of bytecode": """
bytecode = [importlib.util.cache_from_source(file) for file in MODULES]
attempt(lambda file: importlib.machinery.SourcelessFileLoader("x", file).get_code("x"), bytecode)""",
    "a loader of machine code": """
attempt(lambda file: importlib.machinery.ExtensionFileLoader("x", file).create_module(
    importlib.util.spec_from_file_location("x", file)), NATIVES)""",
    "a library": "attempt(ctypes.CDLL, NATIVES)",
    "a script": "attempt(runpy.run_path, MODULES)",
    "text": "attempt(lambda file: open(file).read(), MODULES)",
    "a system call": "attempt(lambda file: os.read(os.open(file, os.O_RDONLY), 9), MODULES)",
    "a list of names": "attempt(os.listdir, FOLDERS)",
    "a link in /proc": """
attempt(lambda file: open(f"/proc/self/fd/{os.open(file, os.O_PATH)}").read(), MODULES)""",
    "a way around": """
for start in (f"{HOME}/json", f"{HOME}/lib-dynload", HOME):
    attempt(lambda file: open(os.path.join(start, os.path.relpath(file, start))).read(), MODULES)""",
    "a folder as a start": """
def read(file):
    start = os.open(HOME, os.O_PATH)
    os.read(os.open(os.path.relpath(file, HOME), os.O_RDONLY, dir_fd=start), 9)
attempt(read, MODULES)""",
    "the folder of the process": """
def read(file):
    os.chdir(os.path.dirname(file))
    open("__init__.py").read()
attempt(read, MODULES)""",
    "files that name paths": """
before = list(sys.path)
for folder in FOLDERS:
    site.addsitedir(folder)
    if any(glob.glob(f"{folder}/*.pth")) and len(sys.path) > len(before) + len(FOLDERS):
        print(42)
attempt(__import__, [name_of(file) for file in MODULES])""",
    "an archive": """
attempt(zipimport.zipimporter, WHEELS)
sys.path += WHEELS
attempt(__import__, ["pip"])""",
    "metadata": """
if any(True for _ in importlib.metadata.distributions(path=FOLDERS + WHEELS)):
    print(42)""",
}
C_ATTACK = """
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    const char *files[] = {FILES, 0}, *folders[] = {FOLDERS, 0};
    for (int i = 0; files[i]; i++) {
        FILE *f = fopen(files[i], "r");
        if (f) { printf("42 %s\\n", files[i]); fclose(f); }
        int d = openat(AT_FDCWD, files[i], O_RDONLY);
        if (d >= 0) { printf("42 %s\\n", files[i]); close(d); }
    }
    for (int i = 0; folders[i]; i++) {
        DIR *d = opendir(folders[i]);
        if (d) { printf("42 %s\\n", folders[i]); closedir(d); }
    }
    return 0;
}
"""
IMPORTS = """
import importlib, sys, warnings
warnings.simplefilter("ignore")
for name in NAMES:
    try:
        importlib.import_module(name)
    except BaseException as error:
        print(name, type(error).__name__)
print("imported")
"""
MODULES_AT_ONCE = 50
# These do something when they are imported; `imp` finds the name of the program where there are no arguments.
LEFT_OUT = {"antigravity", "this", "idlelib", "turtledemo", "imp"}


@dataclass(frozen=True)
class House:
    """Who runs programs, and what is installed there."""

    level: str
    user: int | None
    folder: Path
    facts: dict[str, Any]

    def run(self, programs: list[str], language: str = "python") -> list[list[Any]]:
        done = subprocess.run(
            [python_for(self.user), "-B", str(self.folder / "hostile.py"), self.level, language],
            input=json.dumps([[program, "", 20] for program in programs]),
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(self.folder), "PATH": os.environ["PATH"]},
            cwd="/",
            user=self.user,
            group=self.user,
        )
        assert done.returncode == 0, done.stderr
        runs: list[list[Any]] = json.loads(done.stdout)["runs"]
        return runs

    def python(self, *words: str) -> str:
        """What the interpreter of the programs prints, outside of the sandbox."""
        code = "import sys; print(getattr(sys, '_base_executable', sys.executable))"
        own = [python_for(self.user), "-c", code]
        given: dict[str, Any] = {"check": True, "capture_output": True, "text": True, "user": self.user, "cwd": "/"}
        base = subprocess.run(own, **given).stdout.strip()
        return subprocess.run([base, *words], **given).stdout


SLOW = ("full, ordinary user", "no-landlock, this user", "no-landlock, ordinary user")


@pytest.fixture(scope="module", params=as_whom(slow=SLOW))
def house(request: pytest.FixtureRequest, open_house: Path) -> House:
    level, user = request.param
    if level == "full" and describe_levels()["level"] != "full":
        pytest.skip("this kernel has no Landlock")
    empty = House(level, user, open_house, {})
    facts = json.loads(empty.python("-s", "-S", "-c", FACTS.replace("WHO", sys.prefix)))
    if not facts["modules"]:
        pytest.skip("no packages are installed where this user could read them")
    return House(level, user, open_house, facts)


def test_no_package_is_imported_or_read(house: House) -> None:
    keys = ("home", "folders", "modules", "wheels", "natives")
    begin = BEGIN.format(facts=tuple(house.facts[key] for key in keys))
    runs = house.run([begin + attack for attack in ATTACKS.values()])
    assert {name: run for name, run in zip(ATTACKS, runs, strict=True) if "42" in run[1] or not run[0]} == {}
    # As in an interpreter that has none: a program is not told that there is something to be refused.
    assert (
        "ModuleNotFoundError"
        in house.run(["import sys\nsys.path += " + repr(house.facts["folders"]) + "\nimport pip"])[0][2]
    )


def test_the_attacks_succeed_outside(house: House) -> None:
    """Else they would show nothing."""
    if house.level != "full":
        pytest.skip("outside of the sandbox no level is different")
    keys = ("home", "folders", "modules", "wheels", "natives")
    begin = BEGIN.format(facts=tuple(house.facts[key] for key in keys))
    fail = [
        name for name, attack in ATTACKS.items() if "42" not in house.python("-s", "-S", "-B", "-c", begin + attack)
    ]
    without = {"natives": {"a library", "a loader of machine code"}, "wheels": {"an archive"}}
    assert set(fail) <= {"files that name paths"}.union(
        *(names for key, names in without.items() if not house.facts[key])
    )


@pytest.mark.usefixtures("c_compiler")
def test_no_program_in_c_reads_a_package(house: House) -> None:
    if house.level != "full":
        pytest.skip("C programs need level full")
    files, folders = (", ".join(map(json.dumps, house.facts[key])) for key in ("modules", "folders"))
    reading = C_ATTACK.replace("FILES", files).replace("FOLDERS", folders)
    included = [f'#include "{file}"\nint main(void) {{ return 0; }}' for file in house.facts["modules"]]
    inside = [f'__asm__(".incbin \\"{file}\\"");\nint main(void) {{ return 0; }}' for file in house.facts["modules"]]
    first, *others = house.run([reading, *included, *inside], "c")
    assert (first[0], first[1], first[3]) == (True, "", 0), first
    assert [run for run in others if run[0]] == []
    assert [run for run in others[: len(included)] if "ermission denied" not in run[2]] == []


def test_all_of_the_standard_library_can_be_imported(house: House) -> None:
    if house.level != "full":
        pytest.skip("without Landlock a program imports what it names only")
    names = json.loads(house.python("-c", LIST))
    assert len(names) > 400
    programs = [
        IMPORTS.replace("NAMES", repr(names[first : first + MODULES_AT_ONCE]))
        for first in range(0, len(names), MODULES_AT_ONCE)
    ]
    outside = [house.python("-s", "-S", "-B", "-c", program) for program in programs]
    for inside, plain in zip(house.run(programs), outside, strict=True):
        assert "imported" in inside[1], inside
        assert set(inside[1].splitlines()) <= set(plain.splitlines())


LIST = f"""
import json, os, sys
home, names = os.path.dirname(os.__file__), set(sys.stdlib_module_names)
for folder, folders, files in os.walk(home):
    folders[:] = [each for each in folders if os.path.exists(os.path.join(folder, each, "__init__.py"))
                  and each not in ("test", "tests", "site-packages", "dist-packages", "idle_test")]
    for file in files:
        name = os.path.relpath(os.path.join(folder, file), home)
        if name.endswith(".py") and folder != home and not name.endswith("__main__.py"):
            names.add(name[:-3].replace("/", ".").removesuffix(".__init__"))
print(json.dumps(sorted(each for each in names if each.split(".")[0] not in {LEFT_OUT!r})))
"""


def test_what_a_program_reads_late_is_there(house: House) -> None:
    if house.level != "full":
        pytest.skip("without Landlock a program opens nothing")
    late = {
        "ctypes.CDLL('libm.so.6').abs(-3)": "import ctypes",
        "ssl.OPENSSL_VERSION[:7]": "import ssl",
        "sqlite3.connect(':memory:').execute('select 3').fetchone()[0]": "import sqlite3",
        "zoneinfo.ZoneInfo('Europe/Berlin').key": "import zoneinfo",
        "'é'.encode('cp037')": "",
        "locale.setlocale(locale.LC_ALL, 'C.UTF-8')": "import locale",
        "__import__('sta' 'tistics').mean([1, 3])": "",
        "(importlib.invalidate_caches(), __import__('colo' 'rsys'))[0]": "import importlib",
    }
    programs = [f"{first}\nprint({expression})" for expression, first in late.items()]
    runs = house.run(programs)
    assert [run[1] for run in runs] == [house.python("-s", "-S", "-c", program) for program in programs], runs


# ---- which paths are readable, on made-up systems


def made(folder: Path, *names: str) -> None:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")


def test_of_a_folder_of_libraries_only_what_libraries_read_is_named(tmp_path: Path) -> None:
    lib = tmp_path / "usr" / "lib"
    made(lib, "libc.so.6", "python3/dist-packages/a.py", "python3.12/os.py", "python3.12/site-packages/b.py",
         "node_modules/c.js", "sdk/lib/python3/site-packages/d.py", "x86_64-linux-gnu/libm.so", "locale/C/x",
         "terminfo/x/xterm")  # fmt: skip
    made(tmp_path, "etc/secret", "usr/lib64/ld.so", "usr/share/zoneinfo/UTC")
    (lib / "inviting.so").symlink_to(tmp_path / "etc" / "secret")
    (lib / "locale-of-others").symlink_to(tmp_path / "etc")
    (tmp_path / "lib").symlink_to("usr/lib")
    given = [str(tmp_path / name) for name in ("usr/lib", "lib", "usr/lib64", "usr/share/zoneinfo", "not/there")]
    found = {os.path.relpath(path, tmp_path) for path in library.of_libraries(given)}
    assert found == {
        "usr/lib/libc.so.6", "usr/lib/x86_64-linux-gnu", "usr/lib/locale", "usr/lib/terminfo", "usr/lib64/ld.so",
        "usr/share/zoneinfo", "not/there",
    }  # fmt: skip


@pytest.mark.parametrize("packages", ["site-packages", "dist-packages"])
def test_of_a_standard_library_all_but_its_packages_is_named(
    packages: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "lib" / "python3.12"
    made(home, "os.py", "json/__init__.py", "lib-dynload/_x.so", "__pycache__/os.pyc", f"{packages}/pip/__init__.py",
         "ensurepip/__init__.py", "ensurepip/_bundled/pip.whl")  # fmt: skip
    made(tmp_path, "lib/libpython3.so", "lib/python3/dist-packages/a.py", "etc/sitecustomize.py")
    (home / "sitecustomize.py").symlink_to(tmp_path / "etc" / "sitecustomize.py")
    monkeypatch.setattr(library, "os", SimpleNamespace(**{**vars(os), "__file__": str(home / "os.py")}))
    monkeypatch.setattr(library, "sys", SimpleNamespace(base_prefix=str(tmp_path)))
    found = {os.path.relpath(path, tmp_path) for path in library.of_python()}
    assert found == {
        "lib/libpython3.so", "lib/python3.12/os.py", "lib/python3.12/json", "lib/python3.12/lib-dynload",
        "lib/python3.12/__pycache__", "lib/python3.12/ensurepip/__init__.py",
    }  # fmt: skip
