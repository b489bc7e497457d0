"""Evaluation problems that resemble a training problem in more than its wording: for a table without them.

    python benchmarks/mbpp_overlap.py --json benchmarks/results/mbpp-overlap.json

``mbpp:clean`` leaves out near-duplicates of statements (`near_duplicates`), which misses paraphrases. Here a problem
overlaps with a training problem if

* solution: their reference solutions have the same syntax tree, whatever the names in it;
* assertion: they share an assertion, whatever the function's name;
* statement: at least three quarters of their content words are common (Jaccard).

None of these rules is complete, and what SmolLM2 was pretrained on is unknown.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import re
import sys
from collections.abc import Callable
from pathlib import Path

from record import publish

from securecoderl_edge.problems.near_duplicates import normalized_words
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.sources import load_problems

TRAINING, EVALUATION = "mbpp:clean", ("mbpp:test", "humaneval:test")
LEAST_SHARED = 0.75
# Words of MBPP's statements that do not tell one task from another.
COMMON = frozenset(
    re.findall(
        r"\w+",
        "write a python function to the of in given find an from using whether or not and is for with by that if "
        "lambda complete code whole program",
    )
)


def main() -> None:
    """Compare all pairs, print and save the ids of those that overlap, with the rules that found them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    training = load_problems(TRAINING)
    rules: dict[str, Callable[[Problem], frozenset[str]]] = {"solution": solutions, "assertion": assertions}
    known = {rule: frozenset().union(*map(traits, training)) for rule, traits in rules.items()}
    statements = [content_words(problem) for problem in training]
    found: dict[str, dict[str, list[str]]] = {}
    for source in EVALUATION:
        found[source] = {}
        for problem in load_problems(source):
            reasons = [rule for rule, traits in rules.items() if traits(problem) & known[rule]]
            words = content_words(problem)
            if any(len(words & each) >= LEAST_SHARED * len(words | each) > 0 for each in statements):
                reasons.append("statement")
            if reasons:
                found[source][problem.id] = reasons
        sys.stdout.write(f"{source}: {len(found[source])} problems overlap with {TRAINING}\n")
    shown = {source: len(overlapping) for source, overlapping in found.items()}
    publish({"training": TRAINING, "overlaps": found}, arguments.json, shown=shown)


def solutions(problem: Problem) -> frozenset[str]:
    """The syntax trees of the reference solutions, without names and docstrings."""
    return frozenset(tree for text in problem.solutions if (tree := _tree(text)))


def assertions(problem: Problem) -> frozenset[str]:
    """The assertions in one format, without the name of the function."""
    name = re.compile(rf"\b{re.escape(problem.entry_point or 'candidate')}\b")
    return frozenset(ast.unparse(ast.parse(name.sub("f", text))) for text in problem.assertions)


def content_words(problem: Problem) -> frozenset[str]:
    """The words of the task, in the singular and without `COMMON`."""
    return frozenset(word.removesuffix("s") for word in normalized_words(problem) if word not in COMMON)


def _tree(text: str) -> str | None:
    try:
        return ast.dump(_Renamed().visit(ast.parse(text)))
    except (SyntaxError, ValueError):
        return None


class _Renamed(ast.NodeTransformer):
    """Numbers names in the order in which they occur; those of built-in functions stay."""

    def __init__(self) -> None:
        self._numbers: dict[str, str] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name, node.returns = self._number(node.name), None
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self._number(node.arg))

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._number(node.id), node.ctx)

    def _number(self, name: str) -> str:
        if hasattr(builtins, name):
            return name
        return self._numbers.setdefault(name, f"v{len(self._numbers)}")


if __name__ == "__main__":
    main()
