"""The file that is edited: read with its encoding, compared as a diff, and written back if it is unchanged."""

from __future__ import annotations

import difflib
import io
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.generation.statements import lines_of
from securecoderl_edge.languages.language import PYTHON, language_of_file
from securecoderl_edge.languages.python_source import declared_encoding
from securecoderl_edge.system.files import temporary_beside

_SUFFIXES = (PYTHON.suffix, ".pyw", "")
_NO_NEWLINE = "\n\\ No newline at end of file\n"


@dataclass(frozen=True)
class EditedFile:
    """A Python file as it was read.

    Attributes:
        text: without a byte order mark, with its line ends.
    """

    path: Path
    data: bytes
    text: str
    encoding: str

    def encode(self, edited: str) -> bytes:
        """The bytes of an edited text, with the byte order mark that the file had.

        Raises:
            UnicodeError: the encoding of the file lacks a character, or is not declared any more.
        """
        data = edited.encode(self.encoding)
        with suppress(SyntaxError):
            if _encoding_of(data) == self.encoding:
                return data
        raise UnicodeError(f"the file is not in {self.encoding} any more")

    def diff(self, edited: str) -> str:
        """The unified diff; line ends are those of the file."""
        name = str(self.path).lstrip("/")
        lines = difflib.unified_diff(lines_of(self.text), lines_of(edited), f"a/{name}", f"b/{name}")
        return "".join(line if line.endswith(("\n", "\r")) else line + _NO_NEWLINE for line in lines)

    def write(self, edited: str) -> Path:
        """Replace the file, atomically and with its mode; of a symbolic link, the file it leads to, which is returned.

        Other hard links keep the text as it was.

        Raises:
            SceError: it has changed since it was read, or cannot be written.
        """
        target = Path(os.path.realpath(self.path))
        with temporary_beside(target) as temporary:
            temporary.write_bytes(self.encode(edited))
            if not os.access(target, os.W_OK) and target.exists():
                raise SceError(f"cannot write {target}: it is read-only")
            if not target.is_file() or target.read_bytes() != self.data:
                raise SceError(
                    f"{self.path} has changed since it was read, so nothing was written; run the command again"
                )
            shutil.copymode(target, temporary)
        return target


def read_edited_file(path: Path) -> EditedFile:
    """The file to edit.

    Raises:
        UsageError: there is no such file, or it is no text in Python.
    """
    if not path.is_file():
        raise UsageError(f"--edit {path}: {'a folder, not a file' if path.is_dir() else 'no such file'}")
    if language_of_file(path) != PYTHON:
        raise UsageError(f"--edit {path}: only Python files are edited; a change in C cannot be checked for lost code")
    if path.suffix.lower() not in _SUFFIXES:
        raise UsageError(f"--edit {path}: only Python files are edited, and its name ends in {path.suffix}")
    try:
        data = path.read_bytes()
        encoding = _encoding_of(data)
        text = data.decode(encoding)
    except OSError as error:
        raise UsageError(f"--edit {path}: {error.strerror}") from None
    except (SyntaxError, ValueError):
        raise UsageError(f"--edit {path}: not a text file, or not in the encoding that it declares") from None
    if "\0" in text:
        raise UsageError(f"--edit {path}: a binary file")
    return EditedFile(path, data, text, encoding)


def _encoding_of(data: bytes) -> str:
    """The encoding that a file declares.

    Raises:
        SyntaxError: it is unknown.
    """
    return declared_encoding(io.BytesIO(data).readline)
