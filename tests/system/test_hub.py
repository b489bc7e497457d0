"""Data sets from the hub: asked for only by name, downloaded by the hub's own client from a server of ours."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from dataset_files import MBPP_RECORD

from securecoderl_edge.errors import UsageError
from securecoderl_edge.system.hub import choose_files, is_hub_id

COMMIT = "a" * 40
FILES = {
    "README.md": b"---\n",
    "full/test-00000-of-00002.jsonl": json.dumps({**MBPP_RECORD, "task_id": 11}).encode(),
    "full/test-00001-of-00002.jsonl": json.dumps({**MBPP_RECORD, "task_id": 12}).encode(),
    "full/train-00000-of-00001.jsonl": json.dumps({**MBPP_RECORD, "task_id": 700}).encode(),
}


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as its client asks for to list and download files of the data set ``someone/mbpp``."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def _answer(self, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        prefix = "/datasets/someone/mbpp/resolve/"
        if path.startswith("/api/datasets/someone/mbpp"):
            entries = [
                {"type": "file", "path": n, "size": len(b), "oid": hashlib.sha1(b).hexdigest()}
                for n, b in FILES.items()
            ]
            info = {"id": "someone/mbpp", "sha": COMMIT, "siblings": [{"rfilename": name} for name in FILES]}
            self._send(json.dumps(entries if "/tree/" in path else info).encode(), "application/json", with_body)
        elif path.startswith(prefix) and (name := path[len(prefix) :].partition("/")[2]) in FILES:
            self._send(FILES[name], "application/octet-stream", with_body)
        else:
            self.send_error(404)

    def _send(self, body: bytes, kind: str, with_body: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
        self.end_headers()
        if with_body:
            self.wfile.write(body)


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def sce(folder: Path, endpoint: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(folder / "cache"), "HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-m", "securecoderl_edge", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_the_files_of_a_hub_id_are_downloaded_and_imported(tmp_path: Path, endpoint: str) -> None:
    pytest.importorskip("huggingface_hub")
    done = sce(tmp_path, endpoint, "data", "import", "someone/mbpp", "--files", "full/test*", "--out", "mbpp.jsonl")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    ids = [json.loads(line)["id"] for line in (tmp_path / "mbpp.jsonl").read_text().splitlines()]
    assert ids == ["mbpp/11", "mbpp/12"]


def test_several_files_have_to_be_chosen_from(tmp_path: Path, endpoint: str) -> None:
    pytest.importorskip("huggingface_hub")
    done = sce(tmp_path, endpoint, "data", "import", "someone/mbpp")
    assert done.returncode == 2
    assert "choose with --files PATTERN: full/test-00000-of-00002.jsonl" in done.stderr


def test_a_hub_that_does_not_have_it_is_an_error_of_one_sentence(tmp_path: Path, endpoint: str) -> None:
    pytest.importorskip("huggingface_hub")
    done = sce(tmp_path, endpoint, "data", "import", "someone/nothing")
    assert done.returncode == 1
    assert "cannot download someone/nothing from the Hugging Face Hub" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("openai/openai_humaneval", True),
        ("codeparrot/apps", True),
        ("mbpp.jsonl", False),
        ("data/mbpp.jsonl", False),
        ("a/b/c", False),
        ("../apps/train", False),
        ("here/slip", False),
        ("runs/slip", False),
        ("here", False),
    ],
)
def test_only_owner_and_name_without_such_a_folder_are_a_hub_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, expected: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert is_hub_id(source) is expected


def test_parts_of_one_file_need_no_choice() -> None:
    names = ["data/test-00000-of-00002.parquet", "data/test-00001-of-00002.parquet", "README.md", "dataset_infos.json"]
    assert choose_files(names, None, "o/n") == names[:2]
    with pytest.raises(UsageError, match="o/n: no data file"):
        choose_files(["README.md"], None, "o/n")
    with pytest.raises(UsageError, match="o/n: no file matches 'valid"):
        choose_files(names, "valid*", "o/n")
