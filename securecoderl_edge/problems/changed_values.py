"""Inputs made from given ones by small changes that follow their types, as in EvalPlus (Liu et al., NeurIPS 2023).

A function need not accept all values of a type, and no data set says which it accepts. So a change can be held to what
the given inputs have in common, their *traits*: a list stays sorted if all given lists are, a number stays the length
of a list, and a text keeps its form, such as ``a@a.a``.
"""

from __future__ import annotations

import ast
import itertools
import math
import random
import re
import string
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from securecoderl_edge.languages.python_source import UNREADABLE

_MOST_CHANGES = 3  # of one input
_MOST_CONSTANTS = 1000  # of a reference; of very many, all can have the same hash
_TRIES = 40  # for each input that is wanted
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?P<part>\.\d{1,17})?\Z")
_PATTERN = re.compile(r".[\\[({*+?^$|]")  # as in regular expressions
_RUNS = ((re.compile(r"[A-Za-z]+"), "a"), (re.compile(r"[0-9]+"), "0"), (re.compile(r"\s+"), " "))


def literal_arguments(call: ast.Call) -> list[Any] | None:
    """The values of all arguments of a call, also of those with names; None if one is no literal."""
    try:
        return [ast.literal_eval(each) for each in (*call.args, *(each.value for each in call.keywords))]
    except UNREADABLE:
        return None


def changed(value: Any, generator: random.Random) -> Any:
    """A value of the same type, and of a similar size."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return generator.choice((value + 1, value - 1, 2 * value, 0, -value, 1))
    if isinstance(value, float):
        return generator.choice((value + 1, value - 0.5, 2 * value, 0.0, -value))
    if isinstance(value, str):
        letters = "".join(generator.sample(value, len(value)))
        return generator.choice((value + value, value[::-1], value[1:], value.swapcase(), letters, ""))
    if isinstance(value, (list, tuple)):
        return type(value)(_changed_items(list(value), generator))
    if isinstance(value, dict) and value:
        key = generator.choice(list(value))
        return {**value, key: changed(value[key], generator)}
    return value


def _changed_items(items: list[Any], generator: random.Random) -> Sequence[Any]:
    if not items:
        return items
    place = generator.randrange(len(items))
    one = [*items[:place], changed(items[place], generator), *items[place + 1 :]]
    without = [*items[:place], *items[place + 1 :]]
    return generator.choice((one, one, without, items[::-1], [*items, items[place]]))


def new_inputs(
    examples: Sequence[Sequence[Any]], constants: Iterable[Any], most: int, generator: random.Random
) -> list[list[Any]]:
    """At most ``most`` inputs, lists of arguments, that differ from the examples and have no traits that these lack.

    Args:
        examples: all of the same length.
        constants: values in the reference, which arguments are often compared with. Words among them may have any form,
            but patterns are left out.
    """
    known_values = dict.fromkeys(itertools.islice(constants, _MOST_CONSTANTS))
    texts = [each for each in known_values if isinstance(each, str) and each and not _PATTERN.search(each)]
    numbers = [each for each in known_values if type(each) in (int, float)]
    seen = set().union(*map(_traits, examples))
    known, found = {repr(list(each)) for each in examples}, list[list[Any]]()
    sources = [list(each) for each in examples if each]
    for _ in range(_TRIES * most if sources else 0):
        new, allowed = list(generator.choice(sources)), seen
        for _ in range(generator.randint(1, _MOST_CHANGES)):
            place = generator.randrange(len(new))
            kind = generator.randrange(4)
            if kind == 0:
                new[place] = generator.choice(sources)[place]
            elif kind == 1 and isinstance(new[place], str) and texts:
                new[place] = generator.choice(texts)
                allowed = allowed | (set(_traits_of(new[place], str(place))) - {f"{place}: ' '"})
            elif kind == 1 and type(new[place]) in (int, float) and numbers:
                new[place] = generator.choice(numbers) + generator.choice((-1, 0, 1))
            elif kind == 2 and isinstance(new[place], str):
                new[place] = _with_another_character(new[place], generator)
            else:
                new[place] = changed(new[place], generator)
        if repr(new) not in known and _traits(new) <= allowed:
            known.add(repr(new))
            found.append(new)
            sources.append(new)
            if len(found) == most:
                break
    return found


def _with_another_character(text: str, generator: random.Random) -> str:
    """The text with one letter or digit replaced by another one of its kind."""
    places = [at for at, each in enumerate(text) if each.isascii() and each.isalnum()]
    if not places:
        return text
    at = generator.choice(places)
    kinds = (string.digits, string.ascii_lowercase, string.ascii_uppercase)
    alphabet = next(each for each in kinds if text[at] in each)
    return f"{text[:at]}{generator.choice(alphabet)}{text[at + 1 :]}"


def _traits(arguments: Sequence[Any]) -> set[str]:
    """What distinguishes an input from others that a function may not accept."""
    found = {trait for place, value in enumerate(arguments) for trait in _traits_of(value, str(place))}
    sizes = [("#", len(arguments) - 1)]
    for place, value in enumerate(arguments):
        is_number = type(value) in (int, float)
        sizes += [(str(place), value)] if is_number else [(f"len {place}", len(value))] if _is_sized(value) else []
        if is_number:  # a number of lines that follow
            found.add(f"{place} {_order(value, len(arguments) - place - 1)} rest")
    # A number is often the length of another argument, or an index.
    found |= {f"{one} {_order(size, other)} {name}" for (one, size), (name, other) in itertools.combinations(sizes, 2)}
    return found


def _is_sized(value: Any) -> bool:
    return isinstance(value, (str, list, tuple, dict, set))


def _order(one: float, other: float) -> str:
    return "<" if one < other else ">" if one > other else "=="


def _traits_of(value: Any, at: str) -> Iterator[str]:
    yield f"{at}: {type(value).__name__}"
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, (int, float)):
        yield f"{at}: {_order(value, 0)} 0"
        if abs(value) >= 10 and set(str(value)) - set("-01"):
            yield f"{at}: not binary"
        size = len(str(int(abs(value)))) if math.isfinite(value) else 0
        yield from (f"{at}: {digits} digits" for digits in range(1, size + 1))
    elif isinstance(value, str):
        form = value
        for pattern, sign in _RUNS:
            form = pattern.sub(sign, form)
        yield from (f"{at}: {_kind(each)}" for each in set(value))
        if not all(each in "a0 " for each in form):
            yield f"{at}: form {form}"
        yield from _length(value, at)
    elif isinstance(value, dict):
        yield from (f"{at}: key {key!r}" for key in value)
        for item in value.values():
            yield from _traits_of(item, f"{at} value")
    elif _is_sized(value):
        items = list(value)
        yield from _length(items, at)
        for item in items:
            yield from _traits_of(item, f"{at} item")
        yield from _order_of(items, at)


def _length(value: Sequence[Any], at: str) -> Iterator[str]:
    """Lengths of up to twice those that were seen are alike, an empty one is not."""
    yield from [f"{at}: empty"] if not value else (f"{at}: 2 ** {size}" for size in range(len(value).bit_length()))


def _order_of(items: list[Any], at: str) -> Iterator[str]:
    """Traits of a list as a whole, by neighbors."""
    pairs = list(itertools.pairwise(items))
    with suppress(TypeError):  # values that have no order
        yield from {f"{at}: neighbors {_order(*pair)}" for pair in pairs}
    if len({repr(each) for each in items}) < len(items):
        yield f"{at}: repeated"
    if len({len(each) if _is_sized(each) else 0 for each in items}) > 1:
        yield f"{at}: of several lengths"


def _kind(character: str) -> str:
    if character.isascii() and character.isalnum():
        return "digit" if character.isdigit() else "upper" if character.isupper() else "lower"
    return repr(character)


def values_of_text(text: str) -> list[Any]:
    """An input of a program as arguments, one for each line: its only word, or the list of its words."""
    lines = [list(map(_value_of_word, line.split(" "))) for line in text.rstrip("\n").split("\n")]
    return [line[0] if len(line) == 1 else line for line in lines]


def text_of_values(values: Sequence[Any]) -> str:
    """The text that `values_of_text` reads."""
    lines = (" ".join(map(str, each)) if isinstance(each, list) else str(each) for each in values)
    return "".join(f"{line}\n" for line in lines)


def _value_of_word(word: str) -> Any:
    number = _NUMBER.match(word)
    value = word if number is None else float(word) if number["part"] else int(word)
    return value if str(value) == word else word
