"""Hostile programs as other users run them, and what they could reach if they got out; for tests of the sandbox."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from places import ROOT

SECRET = "EXPECTEDSECRET"
NOBODY = 65534


@dataclass
class Target:
    """What a program could reach if it got out: files and a port."""

    folder: Path
    listener: socket.socket
    datagrams: socket.socket

    def aim(self, code: str) -> str:
        port = str(self.listener.getsockname()[1])
        return code.replace("/canary", str(self.folder)).replace("47111", port)

    def snapshot(self) -> dict[str, tuple[int, int, bytes]]:
        """Mode, time of change and content of every file."""
        return {
            str(path): (path.stat().st_mode, path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
            for path in sorted(self.folder.rglob("*"))
        }

    def was_reached(self) -> bool:
        """Whether anybody connected or sent a datagram."""
        with suppress(BlockingIOError):
            self.listener.accept()
            return True
        with suppress(BlockingIOError):
            self.datagrams.recv(1)
            return True
        return False


def goes_on(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process runs or sleeps: it has not ended and is not stopped."""
    state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    return process.poll() is None and state in "SR"


def as_whom(levels: tuple[str, ...] = ("full", "no-landlock"), slow: tuple[str, ...] = ()) -> list[object]:
    """Parameters for each level and user; each takes a while, so some may be ``slow``, by their ids."""
    ordinary = pytest.mark.skipif(os.getuid() != 0, reason="the tests already run as an ordinary user")
    cases = {
        f"{level}, {who}": (level, user)
        for level in levels
        for user, who in ((None, "this user"), (NOBODY, "ordinary user"))
    }
    assert cases.keys() >= set(slow)
    return [
        pytest.param(case, id=name, marks=[ordinary] * bool(case[1]) + [pytest.mark.slow] * (name in slow))
        for name, case in cases.items()
    ]


@pytest.fixture(scope="module")
def open_house() -> Iterator[Path]:
    """A folder that every user can read, with the package in it: our own may lie in a private place."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        package = ROOT / "securecoderl_edge"
        for room in ("languages", "sandbox", "system"):
            shutil.copytree(package / room, folder / "securecoderl_edge" / room)
        for file in package.glob("*.py"):
            shutil.copy(file, folder / "securecoderl_edge")
        shutil.copy(ROOT / "tests" / "hostile.py", folder)
        yield folder


def python_for(user: int | None) -> str:
    """An interpreter that the user may execute."""
    if user is None:
        return sys.executable
    for python in (getattr(sys, "_base_executable", sys.executable), "/usr/bin/python3"):
        try:
            subprocess.run([python, "-c", "import secrets, tempfile"], check=True, user=user, group=user)
        except (OSError, subprocess.CalledProcessError):
            continue
        return python
    pytest.skip("no interpreter that an ordinary user may execute")


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with tempfile.TemporaryDirectory(prefix="canary-") as name:
        folder = Path(name)
        for file in ("data/keep.txt", ".ssh/id_rsa", ".bashrc"):
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(f"{SECRET} in {file}\n")
        with socket.socket() as listener, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            listener.setblocking(False)
            datagrams.bind(listener.getsockname())
            datagrams.setblocking(False)
            yield Target(folder, listener, datagrams)
