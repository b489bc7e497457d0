"""Which problems are variants of one task."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.problems.groups import disjoint_groups, group_labels, groups_by_id
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.sources import load_problems

WORDS = "Return the sum of the even numbers of a list that has no duplicates at all"


def test_the_group_of_a_problem_counts_more_than_its_words() -> None:
    same = [Problem("a", WORDS, group="one"), Problem("b", WORDS, group="two"), Problem("c", "other", group="one")]
    assert group_labels(same) == ["one", "two", "one"]


def test_families_of_built_in_problems_are_groups() -> None:
    labels = group_labels(load_problems("starter:security"))
    assert len(labels) == 98
    assert len(set(labels)) == 19
    assert group_labels([Problem("starter/sums/a#0", "x", source="starter")]) == ["sums"]
    # The id of another set may look like one of these.
    assert group_labels([Problem("starter/sums/a#0", "x", source="mine")]) != ["sums"]


def test_near_duplicates_are_a_group_where_nothing_else_is_known() -> None:
    problems = [Problem("a", WORDS), Problem("b", "Something else entirely"), Problem("c", f"{WORDS} please")]
    labels = groups_by_id(problems)
    assert labels["a"] == labels["c"] != labels["b"]


def test_a_problem_without_variants_is_a_group_of_its_own() -> None:
    problems = [Problem(f"p{n}", word) for n, word in enumerate(("red apples", "blue sky", "green grass"))]
    assert len(set(group_labels(problems))) == 3
    assert group_labels([]) == []


def test_groups_for_training_join_what_either_rule_joins() -> None:
    problems = [Problem("a", WORDS, group="g"), Problem("b", f"{WORDS} please"), Problem("c", "x", group="g")]
    assert disjoint_groups(problems) == [[0, 1, 2]]
    assert len(set(group_labels(problems))) == 2


@given(st.lists(st.tuples(st.sampled_from(["", "g", "h"]), st.sampled_from(["sky", "blue sea", WORDS])), max_size=9))
def test_disjoint_groups_have_every_problem_once(facts: list[tuple[str, str]]) -> None:
    problems = [Problem(f"p{n}", text, group=group) for n, (group, text) in enumerate(facts)]
    groups = disjoint_groups(problems)
    assert sorted(index for group in groups for index in group) == list(range(len(problems)))
    labels = group_labels(problems)
    for group in groups:
        rest = {labels[index] for index in range(len(problems)) if index not in group}
        assert not rest & {labels[index] for index in group}
