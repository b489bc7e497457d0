"""Headers of GGUF files, damaged ones too: read within what the file can hold."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("gguf", reason="needs the gguf extra")

import gguf

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.gguf.header import header_strings, read_header


def test_a_header_is_what_the_gguf_package_reads(tiny_gguf: Path) -> None:
    header, reader = read_header(tiny_gguf), gguf.GGUFReader(tiny_gguf)
    assert [(tensor.name, list(tensor.sizes), tensor.type) for tensor in header.tensors] == [
        (tensor.name, [int(size) for size in tensor.shape], int(tensor.tensor_type)) for tensor in reader.tensors
    ]
    scalars = {
        name: field.contents()
        for name, field in reader.fields.items()
        if field.types[0] != gguf.GGUFValueType.ARRAY and not name.startswith("GGUF.")
    }
    assert header.values == scalars
    assert header.lists["tokenizer.ggml.token_type"] == tuple(reader.fields["tokenizer.ggml.token_type"].contents())
    assert "tokenizer.ggml.tokens" not in header.lists
    lists = {
        name: tuple(field.contents())
        for name, field in reader.fields.items()
        if field.types[0] == gguf.GGUFValueType.ARRAY
    }
    assert read_header(tiny_gguf, with_lists=True).lists == lists
    assert [tensor.start for tensor in header.tensors] == [tensor.data_offset for tensor in reader.tensors]
    assert header_strings(tiny_gguf)["general.architecture"] == "llama"


def list_of(kind: int, count: int, content: bytes = b"") -> bytes:
    """A file with one value: a list."""
    key = b"key"
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", len(key)) + key
    return head + struct.pack("<IIQ", 9, kind, count) + content


@pytest.mark.parametrize(
    "content",
    [
        list_of(4, 4000),
        b"", b"GGUF", b"GGUF" + bytes(20), list_of(4, 2**63), list_of(4, 2**40), list_of(8, 2**40), list_of(9, 3),
        list_of(4, 3, bytes(11)), list_of(8, 2, struct.pack("<Q", 2**63)), list_of(77, 1, bytes(99)),
        b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**40),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<QBI", 1, 255, 4),
        b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<QBI", 1, 65, 2**31),
        b"NONE" + bytes(200),
    ],
)  # fmt: skip
def test_what_cannot_be_is_a_sentence_at_once(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    started = time.process_time()
    for with_lists in (False, True):
        with pytest.raises(SceError, match=r"x\.gguf: not a GGUF file, or damaged"):
            read_header(path, with_lists)
    assert header_strings(path) == {}
    assert time.process_time() - started < 5


def test_random_damage_is_read_or_refused(tiny_gguf: Path, tmp_path: Path) -> None:
    whole, path, rng = tiny_gguf.read_bytes(), tmp_path / "x.gguf", random.Random(1)
    refused = 0
    for _ in range(300):
        content = bytearray(whole[:20_000])
        for _ in range(rng.choice((1, 1, 4, 30))):
            content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content)
        try:
            read_header(path)
        except SceError:
            refused += 1
    assert refused > 100


def test_lists_within_lists_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(list_of(9, 1, struct.pack("<IQ", 9, 1) * 5000))
    with pytest.raises(SceError, match="unknown type 9"):
        read_header(path)
