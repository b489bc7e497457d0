"""What static analyzers are given of a C program, and what they reported: rules and lines.

Analyzers have switches inside the text that they read. So words that switch gcc's findings off are errors for it
(`header`), and each report is checked word by word: an analyzer that did not read the whole program, or reports
anything unexpected, has failed. Of the program's own texts, a report has strings in JSON and names of files, by which
a program can only add findings.

This file is loaded by path in an interpreter without the package, so it imports the standard library only.
"""

from __future__ import annotations

import json
import re

MOST_REPORT_BYTES = 1 << 20
MOST_FINDINGS = 1000
# The preprocessor's first steps: a backslash joins lines.
_JOINED = re.compile(rb"\\[ \t\v\f\r]*\n")
# Where cppcheck sees other comments or strings than gcc: the mark of a comment on two lines, a backslash as a trigraph.
_READ_OTHERWISE = re.compile(rb"[*/](?:\\[ \t\v\f\r]*\n)+[*/]|\?\?/")
# Without one of these, a text has no pragma and no attribute, and can make none; then the words below are its own.
_MAKES_PRAGMAS = (b"pragma", b"_Pragma", b"attribute", b"gnu", b"##", b"%:%:")
_SILENCING = b"#pragma GCC poison diagnostic optimize __optimize__\n"
# By which a program learns whether it is optimized, as what runs is, and what is analyzed is not.
_TELLS_ANALYSIS = b"constant_p"
_OWN_FILES = ("<stdin>", "/proc/self/fd/0")  # to gcc and to cppcheck; directives can name others
_CPPCHECK_LINE = re.compile(r"(\w+) (\d{1,9}) (.*)")
# By which cppcheck tells that it has read a part only; others of this kind are about headers, which it does not read.
_INCOMPLETE = frozenset((
    "syntaxError", "internalAstError", "internalError", "cppcheckError", "cppcheckLimit", "instantiationError",
    "unknownMacro", "preprocessorErrorDirective", "toomanyconfigs", "noValidConfiguration", "unhandledChar",
    "AnalysisTerminated", "varid0",
))  # fmt: skip


def header(source: bytes) -> bytes:
    """What gcc includes before a program, to be analyzed.

    Raises:
        ValueError: the program asks whether it is analyzed, or analyzers would read it in different ways.
    """
    if _READ_OTHERWISE.search(source):
        raise ValueError("analyzers differ in what they take for a comment")
    text = _JOINED.sub(b"", source.replace(b"??=", b"#"))
    if _TELLS_ANALYSIS in text:
        raise ValueError("the program asks whether it is analyzed")
    return _SILENCING if any(word in text for word in _MAKES_PRAGMAS) else b""


def findings(name: str, report: bytes) -> list[tuple[str, int]]:
    """Rule and line (0 outside of the program's own text) of each finding, without repetitions.

    Raises:
        ValueError: the report is too long or not as expected, or it tells that the analyzer did not finish.
    """
    if len(report) > MOST_REPORT_BYTES:
        raise ValueError("the report is too long")
    text = report.decode("utf-8", "replace")
    found = dict.fromkeys(_of_cppcheck(text) if name == "cppcheck" else _of_gcc(text))
    if len(found) > MOST_FINDINGS:
        raise ValueError("too many findings")
    return list(found)


def _of_gcc(text: str) -> list[tuple[str, int]]:
    found, kinds = [], set()
    try:
        for each in json.loads(text):
            kinds.add(each["kind"])
            if each["kind"] == "warning" and "option" in each:
                found.append((str(each["option"]), _line(each["locations"])))
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise ValueError(f"not a report of gcc: {error}") from None
    if not kinds <= {"warning", "note"}:
        raise ValueError("it did not read the whole program")
    return found


def _line(locations: list[dict[str, dict[str, object]]]) -> int:
    caret = locations[0]["caret"] if locations else {}
    line = caret.get("line")
    return line if isinstance(line, int) and 0 < line < 10**9 and caret.get("file") in _OWN_FILES else 0


def _of_cppcheck(text: str) -> list[tuple[str, int]]:
    found = []
    for line in text.splitlines():
        match = _CPPCHECK_LINE.fullmatch(line)
        if match is None or match[1] in _INCOMPLETE:
            raise ValueError("it did not read the whole program")
        found.append((match[1], int(match[2]) if match[3] in _OWN_FILES else 0))
    return found
