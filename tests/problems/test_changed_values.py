"""Inputs made from given ones."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securecoderl_edge.problems.changed_values import new_inputs, text_of_values, values_of_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.floats(allow_nan=False) | st.text("ab1 -@", max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text("ab"), inner),
    max_leaves=6,
)


def made(*examples: list[Any], constants: tuple[Any, ...] = (), most: int = 40) -> list[list[Any]]:
    return new_inputs(examples, constants, most, random.Random(1))


@settings(max_examples=80, deadline=None)
@given(example=st.lists(VALUES, max_size=3), seed=st.integers(0, 9))
def test_new_inputs_have_the_types_of_the_example_and_differ(example: list[Any], seed: int) -> None:
    found = new_inputs([example], ["ab"], 10, random.Random(seed))
    assert len({repr(each) for each in [example, *found]}) == len(found) + 1
    for each in found:
        assert [type(value) for value in each] == [type(value) for value in example]
    assert repr(found) == repr(new_inputs([example], ["ab"], 10, random.Random(seed)))


def test_of_very_many_constants_the_first_are_taken() -> None:
    taken = []
    made([[1]], constants=(taken.append(number) or number for number in range(10**9)))  # type: ignore[arg-type, func-returns-value]
    assert 0 < len(taken) < 10_000


def test_a_sorted_list_stays_sorted_and_numbers_stay_positive_and_of_their_size() -> None:
    for (numbers,) in made([[1, 3, 5, 9]], [[2, 4]]):
        assert numbers == sorted(numbers)
        assert all(0 < each <= 9 for each in numbers)


def test_a_number_that_is_a_length_stays_one() -> None:
    found = made([[4, 1, 3], 3], [[5, 5], 2])
    assert found
    assert all(len(numbers) == count for numbers, count in found)
    assert any(count not in (2, 3) or numbers not in ([4, 1, 3], [5, 5]) for numbers, count in found)


def test_rows_keep_their_length() -> None:
    assert all(len({len(row) for row in rows}) <= 1 for (rows,) in made([[[1, 2], [3, 4]]], [[[5, 6]]]))


def test_a_text_keeps_its_form_and_its_kinds_of_characters() -> None:
    found = [text for (text,) in made(["user@example.com"])]
    assert found
    assert all(
        text.count("@") == text.count(".") == 1 and text.replace("@", "").replace(".", "").islower() for text in found
    )


def test_a_word_of_the_reference_may_have_another_form_but_a_pattern_is_none() -> None:
    found = [text for (text,) in made(["abc"], constants=("..", r"^\d+[a-z]", "two words"))]
    assert ".." in found
    assert not {r"^\d+[a-z]", "two words"} & set(found)


def test_a_limit_of_the_reference_is_tried_on_both_sides() -> None:
    found = {number for (number,) in made([10], [90], constants=(55,))}
    assert {54, 55, 56} <= found


def test_binary_numbers_stay_binary() -> None:
    assert all(number < 10 or not set(str(number)) - set("01") for (number,) in made([101], [1011]))


def test_an_argument_of_another_example_is_taken() -> None:
    assert ["x", 20] in made(["x", 10], ["y", 20])


@pytest.mark.parametrize("text", ["3\n1 2 3\n", "a b\n\n-1 007 1.50\n", "  two  spaces \n", ""])
def test_a_text_is_read_and_written_without_change(text: str) -> None:
    assert text_of_values(values_of_text(text)).rstrip() == text.rstrip()


@settings(max_examples=100, deadline=None)
@given(st.text("01 .-ab\n", max_size=30))
def test_any_text_is_read_and_written_without_change(text: str) -> None:
    assert text_of_values(values_of_text(text)).rstrip("\n") == text.rstrip("\n")


def test_a_count_of_lines_or_words_stays_right() -> None:
    examples = [values_of_text("2\n5 7\n6 8\n"), values_of_text("2\n1 2\n9 9\n")]
    found = made(*examples)
    assert found
    assert all(lines[0] == 2 and len(lines) == 3 and all(len(row) == 2 for row in lines[1:]) for lines in found)
