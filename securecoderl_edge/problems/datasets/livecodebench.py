"""LiveCodeBench: question_content, starter_code, public_test_cases, private_test_cases, metadata.

Tests are JSON text: a list of {"input", "output", "testtype"}. Private ones may be compressed: base64 of zlib of a
pickle of that text. Nothing is unpickled: a pickle that holds one text and nothing else is read by its opcodes, and any
other one is dropped. Source: Jain et al., 2024, https://github.com/LiveCodeBench/LiveCodeBench
"""

from __future__ import annotations

import base64
import pickletools
import zlib
from typing import Any

from securecoderl_edge.problems.datasets import apps
from securecoderl_edge.problems.datasets.apps import decoded
from securecoderl_edge.problems.datasets.record_files import given_id
from securecoderl_edge.problems.datasets.tally import DropRecord, Tally
from securecoderl_edge.problems.datasets.verified import examples_of
from securecoderl_edge.problems.problem import Problem

SOURCE = "livecodebench"
KEYS = {"question_content", "public_test_cases"}
_LARGEST = 1 << 27  # bytes of the private tests of a problem
# The opcodes of a pickle that is one text, and how many of them there are at most.
_OF_TEXT = {"PROTO", "FRAME", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "MEMOIZE", "BINPUT", "STOP"}
_MOST_OPCODES = 8


def problem_from(record: dict[str, Any], name: str, tally: Tally) -> Problem:
    """The problem in a record: first the public tests, then the private ones; errors as `apps.problem_from`."""
    metadata = decoded(record.get("metadata"), "metadata")
    function = metadata.get("func_name") if isinstance(metadata, dict) else None
    private = record.get("private_test_cases") or "[]"
    if isinstance(private, str) and not private.lstrip().startswith("["):
        private = unpacked(private)
    if private is None:
        tally.drop_test(f"{SOURCE}/{given_id(record, ('question_id',)) or name}", "private tests are not JSON text")
    parts = [decoded(part, "tests") or [] for part in (record.get("public_test_cases"), private)]
    if not all(isinstance(part, list) for part in parts):
        raise DropRecord("tests are not a list of objects")
    examples = examples_of(parts[0] + parts[1], function)
    named = {**record, "question": record.get("question_content"), "input_output": examples}
    return apps.problem_from(named, name, tally, SOURCE)


def unpacked(packed: str) -> str | None:
    """The JSON text in compressed private tests; None if there is anything else in them."""
    try:
        compressed = zlib.decompressobj()
        data = compressed.decompress(base64.b64decode(packed, validate=True), _LARGEST)
        return text_in_pickle(data) if compressed.eof else None
    except (ValueError, zlib.error):
        return None


def text_in_pickle(data: bytes) -> str | None:
    """The text that a pickle consists of, which is not unpickled; None for a pickle of anything else."""
    found = []
    try:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if opcode.name not in _OF_TEXT or number == _MOST_OPCODES:
                return None
            if isinstance(argument, str):
                found.append(argument)
    except (ValueError, OverflowError):
        return None
    return found[0] if len(found) == 1 else None
