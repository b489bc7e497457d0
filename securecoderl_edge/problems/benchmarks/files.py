"""The packaged files of HumanEval and MBPP, and how they are made from the published ones.

    python -m securecoderl_edge.problems.benchmarks.files HumanEval.jsonl.gz mbpp.jsonl

The text stays the same to the byte; only the compression differs.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
from pathlib import Path

from securecoderl_edge.system.files import temporary_beside

# SHA-256 of the text of each file.
DIGESTS = {
    "humaneval": "1d49078ba3e2b196b9344535bef34a43021f038fad9561d6ee7c53450609a6a2",
    "mbpp": "ccf64ceae9c5403bf50a044cb6d505bfd2a2963ee58338ba268fd65beab92a9f",
}


def packaged_file(name: str) -> Path:
    """The packaged file of one of `DIGESTS`."""
    return Path(__file__).with_name(f"{name}.jsonl.gz")


def pack(published: Path, target: Path, digest: str) -> None:
    """Compress a published file to ``target``, with neither time nor file name in its header.

    Raises:
        ValueError: its text has another SHA-256.
    """
    data = published.read_bytes()
    text = gzip.decompress(data) if published.suffix == ".gz" else data
    if hashlib.sha256(text).hexdigest() != digest:
        raise ValueError(f"{published} has another text than the packaged file")
    with temporary_beside(target) as temporary:
        temporary.write_bytes(gzip.compress(text, 9, mtime=0))


if __name__ == "__main__":
    for (_name, _digest), _path in zip(DIGESTS.items(), sys.argv[1:], strict=True):
        pack(Path(_path), packaged_file(_name), _digest)
