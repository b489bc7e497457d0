"""Families about the words of a line: pipelines, composed sorting, picking one, acronyms."""

from __future__ import annotations

from random import Random

from securecoderl_edge.starter.families._text_pieces import Piece, indented, keys, program
from securecoderl_edge.starter.family import Draft, Family
from securecoderl_edge.starter.wording import WORDS, name, phrase, words

_WORD_NAMES = ("w", "word", "t", "token")
_LIST_NAMES = ("words", "tokens", "parts", "names")


def _draw_line(draws: Random) -> str:
    return " ".join(words(draws, 4, 7)) + "\n"


def _read_words(rng: Random) -> str:
    return phrase(
        rng,
        "Read a line of lower-case words separated by spaces. ",
        "One line holds several words. ",
        "You get some words on one line. ",
    )


# word-pipeline: filter x change x report

_FILTERS = {
    "long": Piece("len(@) > 4", ("the words of more than 4 letters", "words with at least 5 letters")),
    "early": Piece('@[0] < "n"', ("the words that start with a letter from a to m",)),
    "e-word": Piece('"e" in @', ("the words that contain the letter e", "words with an e in them")),
    "even": Piece("len(@) % 2 == 0", ("the words of even length", "words with an even number of letters")),
    "rising": Piece("@[0] < @[-1]", ("the words whose first letter comes before their last in the alphabet",)),
    "ends": Piece('@[-1] not in "aeiou"', ("the words that end in a consonant", "words whose last letter is no vowel")),
}
_CHANGES = {
    "reverse": Piece("@[::-1]", ("reverse each of them", "turn each one around")),
    "consonants": Piece('"".join(c for c in @ if c not in "aeiou")', ("delete the vowels (aeiou) of each",)),
    "sort": Piece('"".join(sorted(@))', ("sort the letters of each", "put the letters of each in order")),
    "swap": Piece("@[-1] + @[1:-1] + @[0]", ("swap the first and last letter of each",)),
    "number": Piece("@[0] + str(len(@))", ("replace each by its first letter and its length (like a5)",)),
}
_REPORTS = {
    "join": Piece('"-".join(@) or "none"', ('print the results joined by "-", or "none" without any',)),
    "sorted": Piece('" ".join(sorted(@)) or "none"', ('print the results sorted, with spaces, or "none"',)),
    "backward": Piece('" ".join(@[::-1]) or "none"', ('print the results in reverse order, spaced, or "none"',)),
    "largest": Piece('max(@, default="none")', ('print the alphabetically last result, or "none"',)),
}


def _draft_word_pipeline(key: str, rng: Random) -> Draft:
    filter_key, change_key, report_key = key.split("/")
    wanted, change, report = _FILTERS[filter_key], _CHANGES[change_key], _REPORTS[report_key]
    task = f"{_read_words(rng)}Keep {wanted.say(rng)}, {change.say(rng)}, and {report.say(rng)}."
    every, out, word = name(rng, _LIST_NAMES), name(rng, ("out", "result", "kept")), name(rng, _WORD_NAMES)
    functions = program(
        f"def wanted({word}):",
        f"    return {wanted.on(word)}",
        "",
        "",
        f"def change({word}):",
        f"    return {change.on(word)}",
        "",
        "",
        f"{every} = input().split()",
        f"{out} = [change({word}) for {word} in {every} if wanted({word})]",
        f"print({report.on(out)})",
    )
    loop = program(
        "import sys",
        "",
        f"{every} = sys.stdin.readline().split()",
        f"{out} = []",
        f"for {word} in {every}:",
        f"    if not ({wanted.on(word)}):",
        "        continue",
        f"    new = {change.on(word)}",
        f"    {out}.append(new)",
        f"print({report.on(out)})",
    )
    return Draft(task, _draw_line, (functions, loop))


# word-sort: first key x direction x second key

_MEASURES = {
    "length": Piece("len(@)", ("length", "number of letters")),
    "vowels": Piece('sum(c in "aeiou" for c in @)', ("number of vowels (a, e, i, o, u)",)),
    "distinct": Piece("len(set(@))", ("number of different letters",)),
    "last": Piece("ord(@[-1])", ("last letter",)),
    "second": Piece("ord(@[1])", ("second letter",)),
    "early": Piece('sum(c < "n" for c in @)', ("number of letters from a to m",)),
}
_DIRECTIONS = {"up": Piece("@", ("ascending",)), "down": Piece("-@", ("descending",))}
_TIES = {
    "alphabet": Piece("(@1, @2)", ("alphabetically", "in alphabetical order")),
    "reversed": Piece("(@1, @2[::-1])", ("by the word read backwards", "by comparing them from the end backwards")),
    "input": Piece("@1", ("in input order", "in the order of the line")),
    "late": Piece("", ("with the later one in the line first", "in reverse input order")),
}


def _draft_word_sort(key: str, rng: Random) -> Draft:
    measure_key, direction_key, tie_key = key.split("/")
    measure, direction, tie = _MEASURES[measure_key], _DIRECTIONS[direction_key], _TIES[tie_key]
    task = (
        f"{_read_words(rng)}"
        + phrase(rng, "Sort them by ", "Order the words by ")
        + f"{measure.say(rng)}, {direction.say(rng)}; "
        + phrase(rng, "put equal ones ", "order ties ")
        + f"{tie.say(rng)}. "
        + phrase(rng, "Print them on one line with spaces.", "Print the words separated by spaces.")
    )
    every, word = name(rng, _LIST_NAMES), name(rng, _WORD_NAMES)
    first = direction.on(measure.on(word))
    late = tie_key == "late"
    whole = first if late else tie.code.replace("@1", first).replace("@2", word)
    keyed = program(
        "def order(" + word + "):",
        f"    return {whole}",
        "",
        "",
        f"{every} = input().split()",
        *([f"{every}.reverse()"] if late else []),
        f"{every}.sort(key=order)",
        f'print(" ".join({every}))',
    )
    before = "<=" if late else "<"
    insertion = program(
        f"def order({word}):",
        f"    return {whole}",
        "",
        "",
        "done = []",
        f"for {word} in input().split():",
        "    at = len(done)",
        f"    while at > 0 and order({word}) {before} order(done[at - 1]):",
        "        at -= 1",
        f"    done.insert(at, {word})",
        "print(*done)",
    )
    return Draft(task, _draw_line, (keyed, insertion))


# word-pick: the word that is extreme by a measure x tie rule

_EXTREMES = {
    "most": Piece(">", ("largest", "greatest")),
    "least": Piece("<", ("smallest", "lowest")),
}
_PICK_MEASURES = ("length", "vowels", "distinct", "early")
_PICK_TIES = {
    "first": Piece("", ("the first of them", "the earliest one")),
    "last": Piece("", ("the last of them", "the latest one")),
    "small": Piece("<", ("the alphabetically first one",)),
    "large": Piece(">", ("the alphabetically last one",)),
}
_PICK_OUTPUTS = {
    "word": Piece("@", ("print the word", "print that word")),
    "others": Piece("@", ("print the line without that one word", "print the remaining words in order")),
}


def _draft_word_pick(key: str, rng: Random) -> Draft:
    measure_key, extreme_key, tie_key, output_key = key.split("/")
    measure, extreme, tie = _MEASURES[measure_key], _EXTREMES[extreme_key], _PICK_TIES[tie_key]
    task = (
        f"{_read_words(rng)}Find the word with the {extreme.say(rng)} {measure.say(rng)}"
        + phrase(rng, "; among equal ones take ", "; if several tie, choose ")
        + f"{tie.say(rng)}. Then {_PICK_OUTPUTS[output_key].say(rng)}."
    )
    every, word = name(rng, _LIST_NAMES), name(rng, _WORD_NAMES)
    show = ["del @[best]", 'print(" ".join(@))'] if output_key == "others" else ["print(@[best])"]
    show = [line.replace("@", every) for line in show]
    sign = extreme.code
    if tie_key in ("first", "last"):
        test = f"score {sign}{'=' if tie_key == 'last' else ''} top"
    else:
        test = f"score {sign} top or score == top and {word} {tie.code} {every}[best]"
    loop = program(
        f"{every} = input().split()",
        "best = 0",
        f"top = {measure.on(every + '[0]')}",
        f"for i, {word} in enumerate({every}):",
        f"    score = {measure.on(word)}",
        f"    if {test}:",
        "        best, top = i, score",
        *show,
    )
    choose = "max" if sign == ">" else "min"
    ending = {
        "first": ["best = tied[0]"],
        "last": ["best = tied[-1]"],
        "small": [f"best = min(tied, key=lambda i: {every}[i])"],
        "large": [f"best = max(tied, key=lambda i: {every}[i])"],
    }[tie_key]
    lists = program(
        f"def score({word}):",
        f"    return {measure.on(word)}",
        "",
        "",
        f"{every} = input().split()",
        f"top = {choose}(map(score, {every}))",
        f"tied = [i for i in range(len({every})) if score({every}[i]) == top]",
        *ending,
        *show,
    )
    # Repeats are left out so that ties between equal words cannot matter.
    return Draft(task, lambda draws: " ".join(draws.sample(WORDS, draws.randint(4, 6))) + "\n", (loop, lists))


# acronym: a piece of each word x from which words x how the pieces are put together

_BITS = {
    "first": Piece("@[0]", ("the first letter",)),
    "last": Piece("@[-1]", ("the last letter",)),
    "pair": Piece("@[:2]", ("the first two letters",)),
    "middle": Piece("@[len(@) // 2]", ("the middle letter (the right one of two)",)),
    "vowel": Piece('next((c for c in @ if c in "aeiou"), "-")', ('the first vowel ("-" if it has none)',)),
}
_SOURCES = {
    "all": Piece("", ("every word",)),
    "odd": Piece("i % 2 == 1", ("the 1st, 3rd, 5th, ... word", "every word at an odd position (from 1)")),
    "long": Piece("len(@) > 3", ("every word of more than 3 letters", "each word with at least 4 letters")),
    "later": Piece("i > 1", ("every word but the first",)),
}
_JOINS = {
    "upper": Piece('"".join(@).upper()', ("print them together in upper case",)),
    "reverse": Piece('"".join(reversed(@))', ("print them together, last word's first",)),
    "sorted": Piece('"".join(sorted(set(@)))', ("print the different ones together in alphabetical order",)),
}


def _draft_acronym(key: str, rng: Random) -> Draft:
    bit_key, source_key, join_key = key.split("/")
    bit, source, join = _BITS[bit_key], _SOURCES[source_key], _JOINS[join_key]
    task = (
        phrase(
            rng,
            "Read n, then n lines of words. ",
            "The first line is n; n lines of lower-case words follow. ",
        )
        + f"For each line take {bit.say(rng)} of {source.say(rng)} and {join.say(rng)}. "
        + phrase(rng, 'Print "none" if there is no such word.', 'If no word qualifies, print "none".')
    )
    every, word, out = name(rng, _LIST_NAMES), name(rng, _WORD_NAMES), name(rng, ("out", "bits", "letters"))
    test = source.on(word)
    over = f"i, {word} in enumerate({every}, 1)" if "i " in test else f"{word} in {every}"
    functions = program(
        "import sys",
        "",
        "",
        f"def bit({word}):",
        f"    return {bit.on(word)}",
        "",
        "",
        f"def acronym({every}):",
        f"    {out} = [bit({word}) for {over}{' if ' + test if test else ''}]",
        f'    return {join.on(out)} or "none"',
        "",
        "",
        "for line in sys.stdin.read().splitlines()[1:]:",
        "    print(acronym(line.split()))",
    )
    step = f"{out}.append({bit.on(word)})"
    loop = program(
        "for _ in range(int(input())):",
        f"    {every} = input().split()",
        f"    {out} = []",
        f"    for {over}:",
        indented(*([f"if {test}:", "    " + step] if test else [step]), by=2),
        f"    if {out}:",
        f"        print({join.on(out)})",
        "    else:",
        '        print("none")',
    )

    def draw_input(draws: Random) -> str:
        lines = [" ".join(words(draws, 3, 5)) for _ in range(2)]
        return "\n".join([str(len(lines)), *lines]) + "\n"

    return Draft(task, draw_input, (functions, loop))


FAMILIES = (
    Family("word-pipeline", keys(_FILTERS, _CHANGES, _REPORTS, size=60), _draft_word_pipeline),
    Family("word-sort", keys(_MEASURES, _DIRECTIONS, _TIES), _draft_word_sort),
    Family("word-pick", keys(_PICK_MEASURES, _EXTREMES, _PICK_TIES, _PICK_OUTPUTS, size=56), _draft_word_pick),
    Family("acronym", keys(_BITS, _SOURCES, _JOINS), _draft_acronym),
)
