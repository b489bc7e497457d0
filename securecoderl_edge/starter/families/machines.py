"""Families about machines that read tokens: states, scores, stacks and takers from both ends."""

from __future__ import annotations

import random

from securecoderl_edge.starter.families._compose import compose, piece
from securecoderl_edge.starter.family import Family


def _draw_letters(letters: str, rng: random.Random) -> str:
    return "".join(rng.choices(letters, k=rng.randint(4, 10))) + "\n"


STATES = compose(
    "state-machines",
    {
        "a": {
            "next": piece("a moves 0 to 1, 1 to 2 and 2 to 0", on_a="(state + 1) % 3", a_row="[1, 2, 0]"),
            "mirror": piece("a swaps 0 and 2 and keeps 1", on_a="2 - state", a_row="[2, 1, 0]"),
            "flip": piece("a moves 0 and 2 to 1, and 1 to 2", on_a="2 if state == 1 else 1", a_row="[1, 2, 1]"),
        },
        "b": {
            "reset": piece("b always leads to 0", on_b="0", b_row="[0, 0, 0]"),
            "down": piece("b moves 2 to 1 and 1 to 0 and keeps 0", on_b="max(state - 1, 0)", b_row="[0, 0, 1]"),
            "last": piece("b moves 0 to 2 and any other state to 0", on_b="2 if state == 0 else 0", b_row="[2, 0, 0]"),
        },
        "ask": {
            "path": piece("the states after each letter, as one string of digits", ask='"".join(map(str, path))'),
            "zeros": piece("after how many letters the state is 0", ask="path.count(0)"),
            "sum": piece("the sum of the states after each letter", ask="sum(path)"),
            "weighted": piece(
                "the sum over all letters of the place of the letter (from 1) times the state after it",
                ask="sum(place * state for place, state in enumerate(path, 1))",
            ),
            "last": piece("after how many letters it is in the last state that it reaches", ask="path.count(path[-1])"),
        },
    },
    (
        "Read a string of a's and b's. A machine with states 0, 1, 2 starts in 0: $a; $b. Print $ask.",
        "A machine starts in state 0 and reads a line of letters a and b: $a; $b. Print $ask.",
    ),
    (
        """\
state = 0
path = []
for letter in input():
    if letter == "a":
        state = $on_a
    else:
        state = $on_b
    path.append(state)
print($ask)
""",
        """\
def run($s):
    table = {"a": $a_row, "b": $b_row}
    states = [0]
    for letter in $s:
        states.append(table[letter][states[-1]])
    return states[1:]


path = run(input().strip())
print($ask)
""",
    ),
    lambda rng: _draw_letters("aaabb", rng),
)

SCORES = compose(
    "game-scores",
    {
        "points": {
            "three": piece(
                "3 points for W, 1 for D, 0 for L",
                points='{"W": 3, "D": 1, "L": 0}',
                branch='if game == "W":\n    won = 3\nelse:\n    won = 1 if game == "D" else 0',
            ),
            "two": piece(
                "2 points for W, 1 for D, -1 for L",
                points='{"W": 2, "D": 1, "L": -1}',
                branch='if game == "W":\n    won = 2\nelse:\n    won = 1 if game == "D" else -1',
            ),
            "four": piece(
                "4 points for W, -1 for D, -2 for L",
                points='{"W": 4, "D": -1, "L": -2}',
                branch='if game == "W":\n    won = 4\nelif game == "L":\n    won = -2\nelse:\n    won = -1',
            ),
        },
        "bonus": {
            "streak": piece(
                "a game with the same result as the one before gets 2 more",
                when="games[i] == games[i - 1]",
                change="won + 2",
            ),
            "comeback": piece(
                "a W right after an L counts double", when='games[i - 1:i + 1] == "LW"', change="2 * won"
            ),
            "draws": piece("a game right after a D counts 0", when='games[i - 1] == "D"', change="0"),
            "turns": piece(
                "every even game (2nd, 4th, ...) counts with the opposite sign",
                when="i % 2 == 1",
                change="-won",
            ),
        },
        "ask": {
            "total": piece("the final score", ask="scores[-1]"),
            "list": piece("the score after each game, on one line", ask="*scores"),
            "highest": piece("the highest score after a game", ask="max(scores)"),
            "sum": piece("the sum of the scores after each game", ask="sum(scores)"),
        },
    },
    (
        "Read a string of results W, D, L (won, drawn, lost). The score starts at 0: $points; $bonus. Print $ask.",
        "The letters W, D and L of a line are the results of games. A team gets $points; $bonus. Print $ask.",
    ),
    (
        """\
points = $points
games = input().strip()
$t = 0
scores = []
for i, game in enumerate(games):
    won = points[game]
    if i > 0 and $when:
        won = $change
    $t += won
    scores.append($t)
print($ask)
""",
        """\
def value(games, i):
    game = games[i]
    $branch
    return $change if i and $when else won


games = "".join(input().split())
scores = []
for i in range(len(games)):
    before = scores[-1] if scores else 0
    scores.append(before + value(games, i))
print($ask)
""",
    ),
    lambda rng: _draw_letters("WWDL", rng),
    # without negative points the highest score is the last
    skip=lambda points, bonus, ask: points == "three" and ask == "highest" and bonus != "turns",
)


def _draw_tokens(rng: random.Random) -> str:
    tokens = [
        str(rng.randint(1, 9)),
        *rng.choices(("+", "x", "e", *"123456789"), (3, 4, 3, *([1] * 9)), k=rng.randint(5, 9)),
    ]
    return " ".join(tokens) + "\n"


STACKS = compose(
    "stack-machines",
    {
        "op": {
            "product": piece("their product", op="a * b"),
            "difference": piece("the lower minus the top one", op="a - b"),
            "larger": piece("the larger of them", op="max(a, b)"),
            "smaller": piece("the smaller of them", op="min(a, b)"),
        },
        "extra": {
            "copy": piece(
                "e pushes a copy of the top",
                need="1",
                needs='need = 1 if token == "e" else 2',
                extra="stack.append(stack[-1])",
                new_stack="stack + stack[-1:]",
            ),
            "drop": piece(
                "e removes the top",
                need="1",
                needs='need = 1 if token == "e" else 2',
                extra="stack.pop()",
                new_stack="stack[:-1]",
            ),
            "swap": piece(
                "e swaps the top two",
                need="2",
                needs="need = 2",
                extra="stack[-1], stack[-2] = stack[-2], stack[-1]",
                new_stack="stack[:-2] + [stack[-1], stack[-2]]",
            ),
        },
        "ask": {
            "stack": piece("the final stack from bottom to top, or empty", ask='" ".join(map(str, stack)) or "empty"'),
            "top": piece("the top of the final stack, or empty", ask='stack[-1] if stack else "empty"'),
            "sum": piece("the sum of the numbers on the final stack", ask="sum(stack)"),
            "spread": piece(
                "the bottom minus the top of the final stack, or empty",
                ask='stack[0] - stack[-1] if stack else "empty"',
            ),
        },
    },
    (
        "Read tokens of a stack machine: a number is pushed; + replaces the top two by their sum, x by "
        "$op; $extra. A token with"
        " too few numbers on the stack does nothing. Print $ask.",
    ),
    (
        """\
stack = []
for token in input().split():
    if token.isdigit():
        stack.append(int(token))
    elif token == "e":
        if len(stack) >= $need:
            $extra
    elif len(stack) >= 2:
        b, a = stack.pop(), stack.pop()
        stack.append(a + b if token == "+" else $op)
print($ask)
""",
        """\
def step(stack, token):
    if token not in "+xe":
        return [*stack, int(token)]
    $needs
    if len(stack) < need:
        return stack
    if token == "e":
        return $new_stack
    *rest, a, b = stack
    return [*rest, a + b] if token == "+" else [*rest, $op]


stack = []
for token in input().split():
    stack = step(stack, token)
print($ask)
""",
    ),
    _draw_tokens,
)

TAKERS = {
    "larger": (
        "takes the larger end (left if equal)",
        "numbers[0] >= numbers[-1]",
        "left if values[left] >= values[right] else right",
    ),
    "smaller": (
        "takes the smaller end (left if equal)",
        "numbers[0] <= numbers[-1]",
        "left if values[left] <= values[right] else right",
    ),
    "left": ("takes the left end", "True", "left"),
    "right": ("takes the right end", "False", "right"),
    "even": (
        "takes the left end if it is even, else the right end",
        "numbers[0] % 2 == 0",
        "right if values[left] % 2 else left",
    ),
}

ENDS = compose(
    "take-from-ends",
    {
        "first": {
            key: piece(words, first_left=test, first_place=place) for key, (words, test, place) in TAKERS.items()
        },
        "second": {
            key: piece(words, second_left=test, second_place=place) for key, (words, test, place) in TAKERS.items()
        },
        "ask": {
            "order": piece("the numbers in the order in which they are taken", ask="*taken"),
            "lead": piece("Ann's sum minus Bob's sum", ask="sum(taken[::2]) - sum(taken[1::2])"),
        },
    },
    (
        "Read a line of numbers. Ann and Bob take a number from an end of the row in turn until none is "
        "left. Ann begins and"
        " always $first; Bob $second. Print $ask.",
    ),
    (
        """\
numbers = $ints
taken = []
while numbers:
    if len(taken) % 2 == 0:
        from_left = $first_left
    else:
        from_left = $second_left
    taken.append(numbers.pop(0 if from_left else -1))
print($ask)
""",
        """\
values = $ints
left, right = 0, len(values) - 1
taken = []
while left <= right:
    if len(taken) % 2 == 0:
        place = $first_place
    else:
        place = $second_place
    taken.append(values[place])
    if place == left:
        left += 1
    else:
        right -= 1
print($ask)
""",
    ),
    lambda rng: " ".join(str(rng.randint(1, 20)) for _ in range(rng.randint(4, 8))) + "\n",
    # the row as it is, or backwards
    skip=lambda first, second, ask: ask == "order" and first == second and first in ("left", "right"),
)

FAMILIES: tuple[Family, ...] = (STATES, SCORES, STACKS, ENDS)
