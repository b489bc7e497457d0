"""Families about dictionaries: frequency tables, groups of words, scores per name."""

from __future__ import annotations

from random import Random

from securecoderl_edge.starter.families._text_pieces import Piece, keys, program
from securecoderl_edge.starter.family import Draft, Family
from securecoderl_edge.starter.wording import WORDS, name, phrase

_ALIKE = [word for word in WORDS if word[0] in "cmprb"]


def _draw_words(draws: Random, low: int, high: int, pool_size: int) -> list[str]:
    """Words of a small pool with few initials, so that many repeat and share keys."""
    pool = draws.sample(_ALIKE, pool_size)
    return [draws.choice(pool) for _ in range(draws.randint(low, high))]


def _draw_line(draws: Random) -> str:
    return " ".join(_draw_words(draws, 6, 8, 5)) + "\n"


# frequency-top and frequency-select: what is counted x which entries x how they are shown

_TOKENS = {
    "word": Piece("@", ("the words", "the words themselves")),
    "letter": Piece("", ("the letters of all words", "the letters (not the spaces)")),
    "initial": Piece("@[0]", ("the first letters of the words", "the words' first letters")),
    "final": Piece("@[-1]", ("the last letters of the words", "the words' last letters")),
    "outer": Piece("@[0] + @[-1]", ("the pairs of first and last letter of the words (an for apron)",)),
}


def _token_list(token_key: str) -> str:
    """The expression for the list of tokens of the text ``line``."""
    if token_key == "letter":
        return '[c for c in line if c != " "]'
    if token_key == "word":
        return "line.split()"
    return f"[{_TOKENS[token_key].on('w')} for w in line.split()]"


_RANKS = {
    "common": Piece("-@1", ("most frequent", "highest count")),
    "rare": Piece("@1", ("least frequent", "lowest count")),
}
_RANK_TIES = {
    "alphabet": Piece("@2", ("ties in text order (a before b, 3 before 4)",)),
    "first": Piece("", ("ties by first appearance",)),
}
_RANK_OUTPUTS = {
    "two": Piece('" ".join(f"{t}:{counts[t]}" for t in @[:2])', ("the first two (or the only one) as token:count",)),
    "third": Piece('@[2] if len(@) > 2 else "none"', ('only the third token, or "none" if there are fewer',)),
    "line": Piece('" ".join(@)', ("all different tokens on one line with spaces",)),
}


def _draft_frequency_top(key: str, rng: Random) -> Draft:
    token_key, rank_key, tie_key, output_key = key.split("/")
    rank, output = _RANKS[rank_key], _RANK_OUTPUTS[output_key]
    task = (
        phrase(rng, "Read a line of words and count ", "One line holds words. Count how often each occurs among ")
        + f"{_TOKENS[token_key].say(rng)}. Order these tokens with the {rank.say(rng)} first, "
        + f"{_RANK_TIES[tie_key].say(rng)}, and print {output.say(rng)}."
    )
    order = name(rng, ("order", "ranked", "tokens"))
    count = rank.code.replace("@1", "counts[t]")
    whole = f"({count}, t)" if tie_key == "alphabet" else count
    counter = program(
        "from collections import Counter",
        "",
        "line = input().strip()",
        f"counts = Counter({_token_list(token_key)})",
        "",
        "",
        "def rank(t):",
        f"    return {whole}",
        "",
        "",
        f"{order} = sorted(counts, key=rank)",
        f"print({output.on(order)})",
    )
    # Picking the best again and again: min keeps the first of equal ones.
    manual = program(
        "line = input().strip()",
        "counts = {}",
        f"for t in {_token_list(token_key)}:",
        "    counts[t] = counts.get(t, 0) + 1",
        "left = list(counts)",
        f"{order} = []",
        "while left:",
        f"    best = min(left, key=lambda t: {whole})",
        f"    {order}.append(best)",
        "    left.remove(best)",
        f"print({output.on(order)})",
    )
    return Draft(task, _draw_line, (counter, manual))


_CONDITIONS = {
    "once": Piece("@ == 1", ("occur exactly once", "appear only once")),
    "repeat": Piece("@ >= 2", ("occur at least twice", "appear more than once")),
    "odd": Piece("@ % 2 == 1", ("occur an odd number of times",)),
    "peak": Piece("@ == max(counts.values())", ("occur most often (all of them if several tie)",)),
}
_SELECT_OUTPUTS = {
    "sorted": Piece('" ".join(sorted(@)) or "none"', ('them in text order with spaces, or "none"',)),
    "backward": Piece(
        '" ".join(@[::-1]) or "none"', ('them from last to first appearing (by first place), or "none"',)
    ),
    "sum": Piece("len(@) * 100 + sum(counts[t] for t in @)", ("100 times their number plus the sum of their counts",)),
}


def _draft_frequency_select(key: str, rng: Random) -> Draft:
    token_key, condition_key, output_key = key.split("/")
    condition, output = _CONDITIONS[condition_key], _SELECT_OUTPUTS[output_key]
    task = (
        phrase(rng, "Read a line of words and consider ", "One line holds words. Look at ")
        + f"{_TOKENS[token_key].say(rng)}. Find the different ones that {condition.say(rng)} and print "
        + f"{output.say(rng)}."
    )
    out = name(rng, ("out", "found", "chosen"))
    tokens = _token_list(token_key)
    compact = program(
        "line = input().strip()",
        f"tokens = {tokens}",
        "counts = {t: tokens.count(t) for t in tokens}",
        f"{out} = [t for t, n in counts.items() if {condition.on('n')}]",
        f"print({output.on(out)})",
    )
    loop = program(
        "from collections import defaultdict",
        "",
        "line = input().strip()",
        "counts = defaultdict(int)",
        f"for t in {tokens}:",
        "    counts[t] += 1",
        f"{out} = []",
        "for t in counts:",
        f"    if {condition.on('counts[t]')}:",
        f"        {out}.append(t)",
        f"print({output.on(out)})",
    )
    return Draft(task, _draw_line, (compact, loop))


# word-groups: group words by a key x what to say of a group x the order of the groups

_GROUP_KEYS = {
    "size": Piece("len(@)", ("length", "number of letters")),
    "initial": Piece("@[0]", ("first letter", "initial")),
    "final": Piece("@[-1]", ("last letter", "final letter")),
    "vowels": Piece('sum(c in "aeiou" for c in @)', ("number of vowels (a, e, i, o, u)",)),
}
_GROUP_VALUES = {
    "count": Piece("len(@)", ("how many words it has", "its number of words")),
    "join": Piece('"+".join(@)', ("its words joined by +", "its words in input order with + between")),
    "least": Piece("min(@)", ("its alphabetically first word",)),
    "latest": Piece("@[-1]", ("its last word in the input", "the word that came last")),
    "letters": Piece("sum(map(len, @))", ("the number of letters in all its words", "the sum of its words' lengths")),
}
_GROUP_ORDERS = {
    "up": Piece("sorted(@)", ("keys ascending",)),
    "down": Piece("sorted(@, reverse=True)", ("keys descending",)),
    "big": Piece("sorted(@, key=lambda k: (-len(@[k]), k))", ("largest groups first, ties by ascending key",)),
}


def _draft_word_groups(key: str, rng: Random) -> Draft:
    group_key, value_key, order_key = key.split("/")
    by, value, order = _GROUP_KEYS[group_key], _GROUP_VALUES[value_key], _GROUP_ORDERS[order_key]
    task = (
        phrase(rng, "Read a line of words and group them by ", "One line holds words. Put them in groups by ")
        + f"{by.say(rng)} (the key). For each group print key=value on a line, "
        + f"where the value is {value.say(rng)}; {order.say(rng)}."
    )
    groups, word = name(rng, ("groups", "table", "buckets")), name(rng, ("w", "word", "item"))
    default = program(
        "from collections import defaultdict",
        "",
        "",
        "def show(members):",
        f"    return {value.on('members')}",
        "",
        "",
        f"{groups} = defaultdict(list)",
        f"for {word} in input().split():",
        f"    {groups}[{by.on(word)}].append({word})",
        f"for k in {order.on(groups)}:",
        f'    print(f"{{k}}={{show({groups}[k])}}")',
    )
    plain = program(
        f"{groups} = {{}}",
        f"for {word} in input().split():",
        f"    key = {by.on(word)}",
        f"    if key not in {groups}:",
        f"        {groups}[key] = []",
        f"    {groups}[key].append({word})",
        f"for key in {order.on(groups)}:",
        f"    members = {groups}[key]",
        f"    value = {value.on('members')}",
        '    print(str(key) + "=" + str(value))',
    )
    return Draft(task, lambda draws: " ".join(_draw_words(draws, 4, 6, 6)) + "\n", (default, plain))


# name-scores: what a score counts x their summary x how the names are reported

_SUMMARIES = {
    "sum": Piece("sum(@)", ("the sum of its scores",)),
    "best": Piece("max(@)", ("its highest score",)),
    "mean": Piece("sum(@) // len(@)", ("the average of its scores, rounded down",)),
    "last": Piece("@[-1]", ("its last score",)),
    "clean": Piece("sum(@) - min(@)", ("the sum of its scores without the lowest one",)),
    "steps": Piece("sum(y > x for x, y in zip(@, @[1:]))", ("how often a score is higher than the one before",)),
}
_SCORE_RULES = {
    "plain": Piece("int(@)", ("",)),
    "cap": Piece("min(int(@), 12)", ("scores above 12 count as 12", "a score counts 12 at most")),
    "double": Piece("int(@) * (1 + int(@) % 2)", ("odd scores count twice their value",)),
}
_TABLES = {
    "names": Piece('" ".join(f"{k}:{@[k]}" for k in sorted(@))', ("name:result for all names in alphabetical order",)),
    "ranked": Piece('" ".join(sorted(@, key=lambda k: (-@[k], k)))', ("the names by descending result, ties by name",)),
    "first": Piece('" ".join(f"{k}:{v}" for k, v in @.items())', ("name:result for all names by first appearance",)),
    "least": Piece(
        'min(@, key=@.get) + " " + str(sum(@.values()))',
        ("the first name with the lowest result, then the sum of all results",),
    ),
}


def _draft_name_scores(key: str, rng: Random) -> Draft:
    rule_key, summary_key, table_key = key.split("/")
    rule, summary, table = _SCORE_RULES[rule_key], _SUMMARIES[summary_key], _TABLES[table_key]
    counted = rule.say(rng)
    task = (
        phrase(
            rng,
            "Read n, then n lines `name score`; names repeat. ",
            "After a line with n come n lines with a name and a score. ",
        )
        + (f"Here {counted}. " if counted else "")
        + f"The result of a name is {summary.say(rng)}. Print {table.say(rng)}"
        + ("." if table_key == "least" else phrase(rng, ", with spaces between.", ", on one line."))
    )
    scores, results = name(rng, ("scores", "table", "points")), name(rng, ("results", "final", "summary"))
    loop = program(
        f"{scores} = {{}}",
        "for _ in range(int(input())):",
        "    who, score = input().split()",
        f"    if who not in {scores}:",
        f"        {scores}[who] = []",
        f"    {scores}[who].append({rule.on('score')})",
        f"{results} = {{}}",
        f"for who, got in {scores}.items():",
        f"    {results}[who] = {summary.on('got')}",
        f"print({table.on(results)})",
    )
    functions = program(
        "import sys",
        "from collections import defaultdict",
        "",
        "",
        "def result(xs):",
        f"    return {summary.on('xs')}",
        "",
        "",
        f"{scores} = defaultdict(list)",
        "parts = sys.stdin.read().split()[1:]",
        "for who, score in zip(parts[::2], parts[1::2]):",
        f"    {scores}[who].append({rule.on('score')})",
        f"{results} = {{who: result(xs) for who, xs in {scores}.items()}}",
        f"print({table.on(results)})",
    )

    def draw_input(draws: Random) -> str:
        names = draws.sample([word for word in WORDS if len(word) == 3], 3)
        rows = [f"{each} {draws.randint(1, 20)}" for each in (*names, *draws.choices(names, k=draws.randint(2, 4)))]
        return f"{len(rows)}\n" + "\n".join(rows) + "\n"

    return Draft(task, draw_input, (loop, functions))


FAMILIES = (
    Family("frequency-top", keys(_TOKENS, _RANKS, _RANK_TIES, _RANK_OUTPUTS, size=56), _draft_frequency_top),
    Family(
        "frequency-select",
        keys(_TOKENS, _CONDITIONS, _SELECT_OUTPUTS, drop=("outer/*/sum",)),
        _draft_frequency_select,
    ),
    Family("word-groups", keys(_GROUP_KEYS, _GROUP_VALUES, _GROUP_ORDERS), _draft_word_groups),
    Family("name-scores", keys(_SCORE_RULES, _SUMMARIES, _TABLES, size=54), _draft_name_scores),
)
