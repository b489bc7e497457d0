"""Files are whole or absent."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from securecoderl_edge.errors import SceError
from securecoderl_edge.system import files
from securecoderl_edge.system.files import locked, remove_abandoned, temporary_beside, write_atomically


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write(path: Path, text: str = "new") -> None:
    with write_atomically(path) as out:
        out.write(text)


def test_a_written_file_holds_exactly_what_was_written(tmp_path: Path) -> None:
    write(tmp_path / "file", "line\r\nGröße\n")
    assert (tmp_path / "file").read_bytes() == "line\r\nGröße\n".encode()
    assert names(tmp_path) == ["file"]


def test_missing_folders_are_made(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b" / "file")
    assert (tmp_path / "a" / "b" / "file").read_text() == "new"


def test_the_old_file_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with write_atomically(path) as out:
        out.write("new")
        out.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, SceError])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, failure: type[BaseException]) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def write_half() -> None:
        with write_atomically(path) as out:
            out.write("half")
            raise failure

    with pytest.raises(failure):
        write_half()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    # A limit on file size stands in for the full disk: the kernel refuses the write either way.
    program = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from securecoderl_edge.system.files import write_atomically\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "with write_atomically(Path(sys.argv[1])) as out:\n"
        "    out.write('x' * 100_000)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", program, str(tmp_path / "file")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert f"SceError: cannot write {tmp_path / 'file'}: File too large" in done.stderr
    assert names(tmp_path) == []


def test_a_file_among_the_folders_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SceError, match="cannot write"):
        write(tmp_path / "file" / "below")
    with pytest.raises(SceError, match="cannot write"):
        write(tmp_path / "file" / "further" / "below")


def test_a_name_that_is_too_long_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SceError, match=r"cannot write .*: File name too long"):
        write(tmp_path / ("x" * 300))


def test_a_long_name_that_the_system_permits_is_written(tmp_path: Path) -> None:
    write(tmp_path / ("x" * 255))
    assert names(tmp_path) == ["x" * 255]


@pytest.mark.parametrize("path", ["", ".", "/", ".."])
def test_a_path_without_a_file_name_is_a_sentence(tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SceError, match="cannot write"):
        write(Path(path))
    assert names(tmp_path) == []


def test_a_folder_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(SceError, match="cannot write"):
        write(tmp_path / "folder")
    assert names(tmp_path) == ["folder"]


def test_a_device_or_pipe_is_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(SceError, match=r"cannot write .*pipe: not a regular file"):
        write(pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_writing_through_a_link_keeps_the_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write(link)
    assert link.is_symlink()
    assert target.read_text() == "new"


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl"])
def test_a_folder_with_links_is_not_locked_and_nothing_outside_changes(tmp_path: Path, name: str) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "run"
    outside.write_text("mine")
    folder.mkdir()
    (folder / name).symlink_to(outside)
    with pytest.raises(SceError, match="is a link"), locked(folder):
        pass
    assert outside.read_text() == "mine"


def test_a_temporary_path_stands_beside_its_target(tmp_path: Path) -> None:
    with temporary_beside(tmp_path / "file") as temporary:
        assert temporary.parent == tmp_path
        assert not temporary.exists()
        temporary.write_bytes(b"data")
    assert (tmp_path / "file").read_bytes() == b"data"


def test_a_block_that_wrote_nothing_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SceError, match="cannot write"), temporary_beside(tmp_path / "file"):
        pass
    assert names(tmp_path) == []


def test_an_error_of_another_file_names_that_file(tmp_path: Path) -> None:
    missing = tmp_path / "source"
    with pytest.raises(SceError, match=f"^{missing}: No such file"), temporary_beside(tmp_path / "file") as temporary:
        temporary.write_bytes(missing.read_bytes())
    assert names(tmp_path) == []


def test_a_folder_can_be_put_in_place_or_is_cleared_away(tmp_path: Path) -> None:
    def make_folder(path: Path, failure: Exception | None = None) -> None:
        with temporary_beside(path) as temporary:
            temporary.mkdir()
            (temporary / "file").write_text("")
            if failure:
                raise failure

    make_folder(tmp_path / "kept")
    with pytest.raises(ValueError, match="stop"):
        make_folder(tmp_path / "gone", ValueError("stop"))
    assert names(tmp_path) == ["kept"]


def test_an_error_without_the_systems_reason_suggests_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(SceError, match="is the disk full"), temporary_beside(tmp_path / "a"):
        raise OSError("208896 requested and 10112 written")


# Folders that replace folders


def test_a_folder_gives_way_only_to_one_that_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "model"
    old.mkdir()
    (old / "mine.txt").write_text("old")

    def refuse(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "sync", refuse)
        with pytest.raises(SceError, match="No space left"), temporary_beside(old, replace_folder=True) as temporary:
            temporary.mkdir()
    assert (old / "mine.txt").read_text() == "old"
    assert list(tmp_path.iterdir()) == [old]
    with temporary_beside(old, replace_folder=True) as temporary:
        temporary.mkdir()
        (temporary / "new.txt").write_text("new")
    assert [path.name for path in old.iterdir()] == ["new.txt"]
    assert list(tmp_path.iterdir()) == [old]


def test_the_old_folder_comes_back_if_the_new_one_cannot_have_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "model"
    old.mkdir()
    (old / "mine.txt").write_text("old")
    replace = os.replace

    def refuse_the_new(source: Any, target: Any) -> None:
        if Path(target) == old and "-replaced" not in Path(source).name:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse_the_new)
    with pytest.raises(SceError, match="not permitted"), temporary_beside(old, replace_folder=True) as temporary:
        temporary.mkdir()
    assert (old / "mine.txt").read_text() == "old"


def test_a_link_to_a_folder_stays_and_the_folder_gives_way(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    with temporary_beside(link, replace_folder=True) as temporary:
        temporary.mkdir()
        (temporary / "new.txt").write_text("new")
    assert link.is_symlink()
    assert (link / "new.txt").exists()


def test_what_a_killed_process_moved_aside_is_put_back(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    target = tmp_path / "model"
    aside = tmp_path / f".model.tmp-{gone.pid}-0123abcd-replaced"
    for _ in range(2):
        aside.mkdir()
        (aside / "mine.txt").write_text("old")
        for path in (aside / "mine.txt", aside):
            os.utime(path, (0, 0))
        remove_abandoned(target)
        assert (target / "mine.txt").exists()
        assert not aside.exists()


def killed_while_writing(target: Path, what: str) -> subprocess.Popen[str]:
    """A process that is killed while it has a temporary file or folder next to ``target``, by ``what``."""
    program = (
        "import sys, tempfile, time\nfrom pathlib import Path\n"
        "from securecoderl_edge.system.files import temporary_beside, temporary_prefix, write_atomically\n"
        f"target = Path({str(target)!r})\n{what}"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    return process


WAIT = "print('there', flush=True); time.sleep(600)\n"
LEAVING = {
    "a file": f"with write_atomically(target) as out:\n    out.write('half'); out.flush(); {WAIT}",
    "a folder": f"with temporary_beside(target) as folder:\n    (folder / 'sub').mkdir(parents=True); {WAIT}",
    "a workplace": f"with tempfile.TemporaryDirectory(prefix=temporary_prefix(target), dir=target.parent):\n    {WAIT}",
    "a long name": f"with write_atomically(target.with_name('x' * 250)) as out:\n    {WAIT}",
}


@pytest.mark.parametrize("what", LEAVING)
def test_whoever_writes_next_into_a_folder_removes_what_killed_processes_left(what: str, tmp_path: Path) -> None:
    with killed_while_writing(tmp_path / "model.gguf", LEAVING[what]) as victim:
        write(tmp_path / "first")
        assert len(names(tmp_path)) == 2, "it lives, and may yet finish"
        victim.kill()
    write(tmp_path / "second")
    assert names(tmp_path) == ["first", "second"]


def test_a_temporary_file_of_another_machine_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with killed_while_writing(tmp_path / "a", LEAVING["a file"]) as victim:
        victim.kill()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(files, "_machine", lambda: "abcdef")
        write(tmp_path / "b")
        remove_abandoned(tmp_path / "a")
        assert len(names(tmp_path)) == 2
        for path in tmp_path.glob(".*.tmp-*"):
            os.utime(path, (0, 0))
        write(tmp_path / "b")
        assert len(names(tmp_path)) == 2
        remove_abandoned(tmp_path / "a")
        assert names(tmp_path) == ["b"]


def test_a_folder_that_was_moved_aside_gets_its_name_back_from_whoever_writes_next(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    aside = tmp_path / f".model.tmp-{gone.pid}-{files._machine()}-0123abcd-replaced"
    for _ in range(2):
        aside.mkdir()
        (aside / "mine.txt").write_text("old")
        write(tmp_path / "other")
        assert (tmp_path / "model" / "mine.txt").exists()
        assert not aside.exists()


def test_a_folder_that_cannot_be_listed_can_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refused)
    write(tmp_path / "file")
    assert (tmp_path / "file").exists()


@pytest.mark.parametrize(
    "name", ["20240101", "999999-notes.txt", "²-0123abcd", "1-0123abcd-mine", "-0123abcd", "1-MACHINE-0123abcd-mine"]
)
def test_names_that_are_not_ours_are_left_alone(tmp_path: Path, name: str) -> None:
    mine = tmp_path / f".a.gguf.tmp-{name.replace('MACHINE', files._machine())}"
    mine.write_text("mine")
    os.utime(mine, (0, 0))
    remove_abandoned(tmp_path / "a.gguf")
    write(tmp_path / "b.gguf")
    assert mine.exists()
