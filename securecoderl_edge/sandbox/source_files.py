"""Files to scan: found in folders, and read without trust in their names, kinds and sizes."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.languages.language import LANGUAGES, PYTHON, C, Language
from securecoderl_edge.system.files import standard_input
from securecoderl_edge.text import counted, on_one_line

STDIN = "-"
# What is left out, beside files of other kinds.
ELSEWHERE, IRREGULAR, EXCLUDED = "links to elsewhere", "not regular files", "excluded"
_ONE = {ELSEWHERE: "link to elsewhere", IRREGULAR: "not regular file"}
LONGEST_BYTES = 8 << 20
SUFFIXES = {".py": PYTHON, ".pyw": PYTHON, ".c": C}
# As Bandit. Its pattern *.egg is for names of files; what lies in a folder of such a name, it reports.
LEFT_OUT_FOLDERS = (".svn", "CVS", ".bzr", ".hg", ".git", "__pycache__", ".tox", ".eggs")


@dataclass(frozen=True)
class SourceFile:
    """A file to scan; ``path`` as Bandit's command would name it, ``-`` for standard input.

    ``problem`` is why it cannot be read, such as a folder that may not be listed.
    """

    path: str
    language: Language
    problem: str = ""

    @property
    def name(self) -> str:
        """Its path in reports: as it was given, as ``..`` behind a link is another folder than without both."""
        return "<stdin>" if self.path == STDIN else _shortened(self.path)


@dataclass
class FoundFiles:
    """What was found.

    Attributes:
        files: sorted by name, each once.
        left_out: numbers of files that are not scanned, by suffix or reason.
    """

    files: list[SourceFile] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Selection:
    """Which files are scanned.

    Attributes:
        exclude: patterns, each compared with every part of a path below the folder that is scanned, and with the path.
        exclude_as_bandit: patterns of Bandit's configuration, compared with the path; or a part of it, as text.
        include: patterns of Bandit's configuration for files in Python, which replace the suffixes.
        language: a name, for files whose suffix says nothing and for standard input; ``auto`` by suffix.
    """

    exclude: tuple[str, ...] = ()
    exclude_as_bandit: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    language: str = "auto"

    def language_of(self, path: str) -> Language | None:
        """The language of a file, or None for another kind of file."""
        if self.include and any(fnmatchcase(path, each) for each in self.include):
            return PYTHON
        found = SUFFIXES.get(os.path.splitext(path)[1].lower())
        if self.include and found == PYTHON:
            return None
        return found if self.language in ("auto", found.name if found else "") else None

    def excludes(self, path: str, below: str) -> bool:
        """Whether a pattern of the user leaves out a file or folder, whose path is ``below`` that of what is scanned.

        Where that is on this machine matches only patterns that are absolute themselves.
        """
        for pattern in self.exclude:
            whole = (_shortened(path), path) if os.path.isabs(pattern) or not os.path.isabs(path) else ()
            shortened = _shortened(pattern)
            if any(fnmatchcase(each, shortened) for each in (*whole, below, *below.split(os.sep))):
                return True
        return any(fnmatchcase(path, each) or each in path for each in self.exclude_as_bandit)


def find_sources(paths: Sequence[str], selection: Selection) -> FoundFiles:
    """The files that are named, and those in the folders that are.

    Links to folders are not followed, and links to files only within the folder that was named.

    Raises:
        UsageError: a path does not exist, is no regular file, or has a suffix that stands for no language.
    """
    found = FoundFiles()
    for path in paths:
        if path == STDIN:
            named = LANGUAGES.get(selection.language, PYTHON)
            found.files.append(SourceFile(STDIN, named))
        elif os.path.isdir(path):
            for file in _in_folder(path, selection, found):
                found.files.append(file)
        else:
            _check_file(path)
            if selection.excludes(os.path.join(".", path), _below_here(path)):
                found.left_out[EXCLUDED] += 1
            else:
                language = selection.language_of(path) or named_language(path, selection.language)
                found.files.append(SourceFile(os.path.join(".", path), language))
    by_place = {place_of(each.path): each for each in reversed(found.files)}
    found.files = sorted(by_place.values(), key=lambda each: each.name.split(os.sep))
    return found


def named_language(path: str, language: str) -> Language:
    """The language of a file that is named: ``language``, or for ``auto`` that of its suffix.

    Raises:
        UsageError: the suffix stands for none, so that a scan as Python would find nothing in another language.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix == ".ipynb":
        raise UsageError(f"{path}: a notebook, not a program. Convert it with: jupyter nbconvert --to script")
    found = LANGUAGES.get(language) or SUFFIXES.get(suffix)
    if found is None:
        raise UsageError(f"{path}: neither .py nor .c. Read it as one of these with --language python or c.")
    return found


def place_of(path: str) -> str:
    """The one absolute path of a file, or of a link to it, whichever links to folders lead there; ``-`` as it is."""
    if path == STDIN:
        return path
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)


def _shortened(path: str) -> str:
    """Without ``.`` and double slashes."""
    parts = os.sep.join(each for each in path.split(os.sep) if each not in ("", "."))
    return f"{os.sep}{parts}" if os.path.isabs(path) else parts or "."


def _below_here(path: str) -> str:
    """The path of a file below the current folder; its name, if it is elsewhere."""
    below = os.path.relpath(path)
    return os.path.basename(path) if below.startswith(os.pardir + os.sep) else below


def _check_file(path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{path}: no such file or folder") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path}: not a regular file. Standard input is read with: sce scan -")


def _in_folder(root: str, selection: Selection, found: FoundFiles) -> Iterator[SourceFile]:
    real_root = os.path.realpath(root)
    folders = [root]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                each_entry = list(entries)
        except OSError as error:
            yield SourceFile(folder, PYTHON, f"cannot be listed: {error.strerror}")
            continue
        for entry in each_entry:
            path = os.path.join(folder, entry.name)
            below = path[len(root) :].lstrip(os.sep)
            if entry.is_dir(follow_symlinks=False):
                if selection.excludes(path, below):
                    found.left_out[EXCLUDED] += 1
                elif any(fnmatchcase(entry.name, each) for each in LEFT_OUT_FOLDERS):
                    found.left_out[f"{entry.name}/"] += 1
                else:
                    folders.append(path)
                continue
            language = selection.language_of(path)
            if language is None:
                found.left_out[os.path.splitext(entry.name)[1].lower() or "no suffix"] += 1
            elif selection.excludes(path, below):
                found.left_out[EXCLUDED] += 1
            elif entry.is_symlink() and not _is_within(path, real_root):
                found.left_out[ELSEWHERE] += 1
            else:
                yield from _if_file(entry, SourceFile(path, language), found)


def _if_file(entry: os.DirEntry[str], file: SourceFile, found: FoundFiles) -> Iterator[SourceFile]:
    try:
        if entry.is_file():
            yield file
        else:
            found.left_out[IRREGULAR] += 1
    except OSError as error:  # such as a link to itself
        yield replace(file, problem=f"cannot be read: {error.strerror}")


def _is_within(path: str, folder: str) -> bool:
    return os.path.realpath(path).startswith(os.path.join(folder, ""))


def read_source(source: SourceFile) -> bytes:
    """The bytes of a file; of standard input for ``-``.

    Raises:
        SceError: it cannot be read, is not a regular file (any more), or is longer than `LONGEST_BYTES`.
    """
    if source.problem:
        raise SceError(source.problem)
    try:
        if source.path == STDIN:
            data = standard_input().read(LONGEST_BYTES + 1)
        else:
            # Not blocking: what was a file may be a pipe by now.
            descriptor = os.open(source.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise SceError("not a regular file")
                data = file.read(LONGEST_BYTES + 1)
    except OSError as error:
        raise SceError(f"cannot be read: {error.strerror}") from None
    if len(data) > LONGEST_BYTES:
        raise SceError(f"too long; the limit is {LONGEST_BYTES >> 20} MiB")
    return data


def kinds_in_words(left_out: Counter[str], most: int = 6) -> str:
    """The most frequent kinds of files that were left out, such as ``3 .md, 1 .venv/``."""
    in_order = sorted(left_out.items(), key=lambda each: (-each[1], each[0]))
    shown = [f"{number} {on_one_line(_ONE.get(kind, kind) if number == 1 else kind)}" for kind, number in in_order]
    left = len(shown) - most
    return ", ".join(shown[:most] + ([f"and {counted(left, 'more kind')}"] if left > 0 else []))
