"""The C forms of the shared pieces (`_pieces`), by the keys of their tables."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent

from families._compose import Piece, Table

Forms = Mapping[str, Mapping[str, str]]


def with_c(table: Table, forms: Forms) -> dict[str, Piece]:
    """A table whose pieces say in C what they say in Python."""
    return {key: _with(chosen, **forms[key]) for key, chosen in table.items()}


def _with(chosen: Piece, **forms: str) -> Piece:
    return Piece(chosen.words, {**chosen.code, **{f"c_{label}": text for label, text in forms.items()}})


def block(head: str, body: str) -> str:
    """A C statement with a body; one line needs no braces."""
    return f"{head}\n{indent(body, '    ')}" if _is_one_statement(body) else f"{head} {{\n{indent(body, '    ')}\n}}"


def _is_one_statement(body: str) -> bool:
    return "\n" not in body and body.count(";") == 1 and not body.startswith(("int ", "long "))


def guarded(test: str, statement: str) -> str:
    """The statement, under a condition if there is one."""
    return block(f"if ({test})", statement) if test else statement


def condition(kept: Piece) -> Piece:
    """A condition on numbers, whose test C reads as Python does.

    One more bit, ``$change_and_collect``, is for programs where a function does the change.
    """
    test = kept.code["test"] if kept.code["where"] else ""
    return _with(
        kept,
        test=test or "1",
        follow=guarded(test, "long long $y = $value;\n$take"),
        collect=guarded(test, "$ys[size++] = $value;"),
        change_and_collect=guarded(test, "$ys[size++] = change($x);"),
    )


def conditions(table: Table) -> dict[str, Piece]:
    return {key: condition(kept) for key, kept in table.items()}


def changes(table: Table) -> dict[str, Piece]:
    """Changes of numbers, most of which C reads as Python does."""
    own = {"absolute": "llabs($x)", "last-digit": "llabs($x) % 10", "half": "floor_div($x, 2)"}
    return {key: _with(chosen, value=own[key]) if key in own else chosen for key, chosen in table.items()}


# Folds.

EACH_KEPT = "for (int i = 0; i < size; i++) {\n    long long $y = $ys[i];\n    $take\n}"


def _number(start: str, take: str, result: str = "$t", format: str = "%lld") -> dict[str, str]:
    """A fold to one number, ``$result``, whose state ``$start`` declares."""
    show = f'printf("{format}\\n", {result});'
    return {"start": start, "take": take, "result": result, "show": show, "whole": f"$start\n{EACH_KEPT}\n$show"}


def _list(show: str) -> dict[str, str]:
    """A fold to a list."""
    return {
        "start": "long long $ys[MAX];\nint size = 0;",
        "take": "$ys[size++] = $y;",
        "show": show,
        "whole": show,
    }


def _printed(separator: str, before: str = "") -> str:
    row = f'for (int i = 0; i < size; i++)\n    printf("%s%lld", i ? "{separator}" : "", $ys[i]);\nprintf("\\n");'
    return before + row


_BEST = "long long $t = 0;\nint seen = 0;"
FOLDS: Forms = {
    "sum": _number("long long $t = 0;", "$t += $y;"),
    "max": _number(_BEST, "if (seen++ == 0 || $y > $t)\n    $t = $y;"),
    "min": _number(_BEST, "if (seen++ == 0 || $y < $t)\n    $t = $y;"),
    "distinct": _number(
        "long long seen[MAX];\nint $t = 0;",
        "int j = 0;\nwhile (j < $t && seen[j] != $y)\n    j++;\nif (j == $t)\n    seen[$t++] = $y;",
        format="%d",
    ),
    "ascending": _list(_printed(" ", "sort($ys, size);\n")),
    "backwards": _list(
        'for (int i = size - 1; i >= 0; i--)\n    printf("%lld%s", $ys[i], i ? " " : "");\nprintf("\\n");'
    ),
    "spaced": _list(_printed(" ")),
    "dashed": _list(_printed("-")),
    "span": _number(
        "long long low = 0, high = 0;\nint seen = 0;",
        "if (seen == 0 || $y < low)\n    low = $y;\nif (seen == 0 || $y > high)\n    high = $y;\nseen++;",
        "high - low",
    ),
    "alternating": _number("long long $t = 0;\nint sign = 1;", "$t += sign * $y;\nsign = -sign;"),
    "weighted": _number("long long $t = 0;\nint rank = 0;", "$t += ++rank * $y;"),
}
