"""How families about numbers write their programs: code templates, several styles, products of pieces.

A pipeline reads numbers, loops over something, keeps what meets a condition and computes a value for each;
a measure turns those values into the answer.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Any

from securecoderl_edge.starter.families._number_pieces import Measure
from securecoderl_edge.starter.family import Draft, Family
from securecoderl_edge.starter.wording import ITEM_NAMES, LIST_NAMES, TOTAL_NAMES, name

_SHORTEST, _LONGEST = 125, 500
_MAIN_SHARE = 0.4
_TAB = "    "


@dataclass(frozen=True)
class Pipeline:
    """Code templates of one computation of values.

    Attributes:
        readers: equivalent ways to read the input.
        loops, condition, value: the heads of nested loops, what must hold (may be empty), what is computed.
        before: statements before the loops; ``update``: statements at the start of the innermost loop.
        helpers: functions that the code calls.
        params: what the code uses of the input.
    """

    readers: tuple[str, ...]
    loops: tuple[str, ...]
    condition: str
    value: str
    before: str = ""
    update: str = ""
    helpers: tuple[str, ...] = ()
    params: str = "{xs}"


def compose(
    family: str,
    tables: Sequence[Mapping[str, Any]],
    draft: Callable[..., Draft],
    *,
    limit: int = 54,
    allow: Callable[..., bool] = lambda *keys: True,
) -> Family:
    """A family over the product of tables of pieces, cut to ``limit`` compositions chosen by a hash.

    ``draft`` gets the random generator and the chosen piece of every table; ``allow`` gets their keys.
    """
    keys = ["/".join(parts) for parts in itertools.product(*tables) if allow(*parts)]
    keys.sort(key=lambda key: hashlib.sha256(f"{key} of {family}".encode()).digest())

    def draft_key(key: str, rng: random.Random) -> Draft:
        pieces = [table[part] for table, part in zip(tables, key.split("/"), strict=True)]
        return draft(rng, *pieces)

    return Family(family, tuple(sorted(keys[:limit])), draft_key)


def join_blocks(*blocks: str) -> str:
    """A program from blocks of code: imports first, two empty lines around functions."""
    imports: list[str] = []
    bodies: list[str] = []
    for block in blocks:
        lines = block.split("\n")
        imports += [line for line in lines if line.startswith("import ")]
        body = "\n".join(line for line in lines if not line.startswith("import ")).strip("\n")
        if not body:
            continue
        if bodies and not body.startswith("def ") and not bodies[-1].startswith("def "):
            bodies[-1] += "\n" + body
        else:
            bodies.append(body)
    if not imports:
        return "\n\n\n".join(bodies) + "\n"
    gap = "\n\n\n" if bodies[0].startswith("def ") else "\n\n"
    return "\n".join(sorted(set(imports))) + gap + "\n\n\n".join(bodies) + "\n"


def define(head: str, *body: str) -> str:
    """A function with the given head, such as ``solve(xs)``; import lines in the body move out of it."""
    lines = "\n".join(body).split("\n")
    imports = [line for line in lines if line.startswith("import ")]
    code = "\n".join(line for line in lines if not line.startswith("import "))
    return "\n".join([*imports, f"def {head}:", indent(code, _TAB)])


def several(rng: random.Random, *programs: str) -> tuple[str, ...]:
    """Up to three different programs in random order, without very short and long ones where enough remain.

    Some are put into a function ``main``, so that this style occurs everywhere.
    """
    unique = list(dict.fromkeys(programs))
    rng.shuffle(unique)
    unique = [_in_main(program) if rng.random() < _MAIN_SHARE else program for program in unique]
    fitting = [program for program in unique if _SHORTEST <= len(program) <= _LONGEST]
    others = [program for program in unique if program not in fitting]
    return tuple(fitting[:3] if len(fitting) > 1 else (fitting + sorted(others, key=len))[:2])


def _in_main(program: str) -> str:
    """The same program with its statements in a function, unless it has functions already."""
    if "def " in program:
        return program
    return join_blocks(define("main()", program.strip("\n").replace("\n\n", "\n")), "main()")


def _nest(pipeline: Pipeline, action: str) -> str:
    """The loops and the condition around an action."""
    if pipeline.condition:
        action = f"if {pipeline.condition}:\n{indent(action, _TAB)}"
    lines = "\n".join([pipeline.update, action]) if pipeline.update else action
    for loop in reversed(pipeline.loops):
        lines = f"{loop}:\n{indent(lines, _TAB)}"
    return lines


def _fold(pipeline: Pipeline, measure: Measure) -> str:
    """The loop form of a measure, without its answer ``measure.end``."""
    start = measure.start or "{t} = []"
    step = measure.step or "{t}.append({y})"
    inline = step.count("{y}") < 2 and re.search(r"(= |[(]|, ){y}([)]|$)", step)
    if "{y}" not in step or inline or pipeline.value.strip("{}").isidentifier():
        step = step.replace("{y}", pipeline.value)
    else:
        step = f"{{y}} = {pipeline.value}\n{step}"
    return "\n".join(part for part in (pipeline.before, start, _nest(pipeline, step)) if part)


def write_programs(rng: random.Random, pipeline: Pipeline, measure: Measure) -> tuple[str, ...]:
    """Up to three programs for a pipeline and its measure, in different styles with names of their own."""

    def read() -> str:
        return rng.choice(pipeline.readers)

    end = measure.end if measure.start else measure.result.replace("{ys}", "{t}")
    loops = " ".join(pipeline.loops) + (f" if {pipeline.condition}" if pipeline.condition else "")
    fold = _fold(pipeline, measure)
    answer = (measure.imports, f"print({measure.result})")
    imports = measure.imports if "math." in fold + end else ""
    params = pipeline.params
    before = (pipeline.before,) if pipeline.before else ()
    select = define(f"select({params})", *before, _nest(pipeline, f"yield {pipeline.value}"))
    styles: list[tuple[str, ...]] = [
        (imports, read(), fold, f"print({end})"),
        (imports, define(f"{{f}}({params})", fold, f"return {end}"), read(), f"print({{f}}({params}))"),
        (select, read(), f"{{ys}} = list(select({params}))", *answer),
    ]
    if not pipeline.update:
        styles.append((read(), *before, f"{{ys}} = [{pipeline.value} {loops}]", *answer))
    if measure.start:
        collect = _nest(pipeline, f"{{ys}}.append({pipeline.value})")
        styles.append((read(), *before, "{ys} = []", collect, *answer))
    return several(rng, *(write(rng, *pipeline.helpers, *style) for style in styles))


def write(rng: random.Random, *blocks: str) -> str:
    """A program from code templates, with freshly drawn names."""
    names = draw_names(rng)
    return join_blocks(*(fill(block, names) for block in blocks))


def fill(template: str, names: Mapping[str, str]) -> str:
    """Put names into the holes of a template; other braces stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda hole: names.get(hole[1], hole[0]), template)


def draw_names(rng: random.Random) -> dict[str, str]:
    """Names for the holes: see `_number_pieces`; also ``{zs}`` (a second list) and ``{f}`` (a function)."""
    return {
        "xs": name(rng, LIST_NAMES),
        "x": name(rng, ITEM_NAMES, "value"),
        "ys": name(rng, ("kept", "picked", "chosen", "ys", "found")),
        "y": name(rng, ("y", "cur", "term")),
        "zs": name(rng, ("others", "second", "bs", "ws")),
        "t": name(rng, TOTAL_NAMES),
        "f": name(rng, ("solve", "compute", "evaluate")),
    }
