"""What families of numbers read, in C: each leaves its numbers in ``$xs`` and their number in ``count``."""

from __future__ import annotations

from textwrap import indent

from families._inputs import C_READ_NUMBERS


def _scan(types: str, names: str) -> str:
    """Read integers, or end with an error."""
    targets = names.split()
    format = " ".join({"int": "%d", "long long": "%lld"}[types] for _ in targets)
    places = ", ".join(f"&{name}" for name in targets)
    values = ", ".join(targets)
    return f'{types} {values};\nif (scanf("{format}", {places}) != {len(targets)})\n    return 1;\n'


def _loop(head: str, *statements: str) -> str:
    """A loop over statements; one line needs no braces."""
    body = indent("\n".join(statements), "    ")
    return f"{head} {{\n{body}\n}}" if "\n" in body else f"{head}\n{body}"


def _add(value: str) -> str:
    return f"$xs[count++] = {value};"


def _row(name: str) -> str:
    return f"long long {name}[MAX];\n"


_N, _K, _TWO = _scan("int", "n"), _scan("int", "k"), _scan("long long", "a b")
_LINE = f"{_row('line')}int length = read_line(line);\n"
_TWO_LINES = f"{_row('first')}{_row('second')}int length = read_line(first);\n"
_MATRIX = (
    f"{_N}static long long rows[MAX][MAX];\nint width = 0;\n"
    "for (int i = 0; i < n && i < MAX; i++)\n    width = read_line(rows[i]);\n"
)
_ALL_ROWS = "for (int i = 0; i < n; i++)"
_COUNTED = f"{_N}{C_READ_NUMBERS.replace('count < MAX', 'count < n && count < MAX')}"


def _each(value: str, start: str = "0", end: str = "length", before: str = _LINE) -> str:
    """A number for each place of a line."""
    return before + _loop(f"for (int i = {start}; i < {end}; i++)", _add(value))


def _best(rows: str, columns: str, cell: str, better: str, first: str) -> str:
    return (
        _MATRIX
        + f"for (int i = 0; i < {rows}; i++) {{\n    long long best = {first};\n"
        + f"    for (int j = 1; j < {columns}; j++)\n        best = {better}(best, {cell});\n    {_add('best')}\n}}"
    )


def _sums(rows: str, columns: str, cell: str, add: str = _add("sum")) -> str:
    return (
        f"for (int i = 0; i < {rows}; i++) {{\n    long long sum = 0;\n"
        f"    for (int j = 0; j < {columns}; j++)\n        sum += {cell};\n{indent(add, '    ')}\n}}"
    )


def _pairs(value: str) -> str:
    return _N + _loop("for (int i = 0; i < n && i < MAX; i++)", _TWO + _add(value))


def _on_two_lines(value: str) -> str:
    return _each(value, before=f"{_TWO_LINES}read_line(second);\n")


def _while(test: str, *statements: str) -> str:
    return _loop(f"while (count < MAX && {test})", *statements)


_WORD = 'scanf("%63s", word) == 1'
_EACH_WORD = "char word[SIZE];\n"
_LETTER = "int letter = getchar();\n"
_ENTRY = 'scanf(" %63[^:]:%lld", name, &score) == 2'
_SCORES = "char names[MAX][SIZE], name[SIZE];\nlong long score;\n"


def _by_name(first: str, *later: str) -> str:
    """The number of each name; ``first`` and ``later`` say what a score does to it."""
    found = f"int i = find(names, count, name);\nif (i == count) {{\n    strcpy(names[count], name);\n    {first}\n}}"
    return _SCORES + _while(_ENTRY, found + "".join(later))


C_READS = {
    "line-numbers": C_READ_NUMBERS,
    "counted-numbers": _COUNTED,
    "number-rows": _COUNTED,
    "comma-numbers": C_READ_NUMBERS.replace("%lld", "%lld%*c"),
    "zero-ended": _while('scanf("%lld", &$xs[count]) == 1 && $xs[count] != 0', "count++;"),
    "word-lengths": _EACH_WORD + _while(_WORD, _add("(long long)strlen(word)")),
    "digit-list": "int digit = getchar();\n" + _while("isdigit(digit)", _add("digit - '0'"), "digit = getchar();"),
    "ranges": _TWO + _while("a <= b", _add("a++")),
    "divisors": _N + _loop("for (int d = 1; d <= n && count < MAX; d++)", "if (n % d == 0)", f"    {_add('d')}"),
    "matrix-cells": C_READ_NUMBERS,
    "neighbour-differences": _each("line[i] - line[i - 1]", "1"),
    "running-totals": "long long subtotal = 0, part;\n"
    + _while('scanf("%lld", &part) == 1', "subtotal += part;", _add("subtotal")),
    "line-sums": _on_two_lines("first[i] + second[i]"),
    "larger-ones": _on_two_lines("larger(first[i], second[i])"),
    "window-sums": _K + _LINE + _sums("length - k + 1", "k", "line[i + j]"),
    "running-maxima": _each("i ? larger(line[i], $xs[i - 1]) : line[i]"),
    "running-minima": _each("i ? smaller(line[i], $xs[i - 1]) : line[i]"),
    "neighbour-sums": _each("line[i - 1] + line[i]", "1"),
    "neighbour-products": _each("line[i - 1] * line[i]", "1"),
    "neighbour-maxima": _each("larger(line[i - 1], line[i])", "1"),
    "plus-place": _each("line[i] + i"),
    "times-place": _each("line[i] * (i + 1)"),
    "minus-first": _each("line[i] - line[0]", "1"),
    "plus-last": _each("line[i] + line[length - 1]", "0", "length - 1"),
    "line-differences": _on_two_lines("first[i] - second[i]"),
    "line-products": _on_two_lines("first[i] * second[i]"),
    "smaller-ones": _on_two_lines("smaller(first[i], second[i])"),
    "joined-lines": C_READ_NUMBERS,
    "missing-numbers": f"{_TWO_LINES}int others = read_line(second);\n"
    + _loop(
        "for (int i = 0; i < length; i++)",
        "int j = 0;",
        "while (j < others && second[j] != first[i])",
        "    j++;",
        "if (j == others)",
        f"    {_add('first[i]')}",
    ),
    "scaled": _each("k * line[i]", before=_K + _LINE),
    "shifted": _each("line[i] + k", before=_K + _LINE),
    "shifted-down": _each("line[i] - k", before=_K + _LINE),
    "multiples": _scan("int", "n k") + _loop("for (int i = 1; i <= k && count < MAX; i++)", _add("n * i")),
    "steps": _scan("long long", "a b s") + _loop("for (; a < b && count < MAX; a += s)", _add("a")),
    "copies": "long long number;\nint times;\n"
    + _loop(
        'while (scanf("%lldx%d", &number, &times) == 2)',
        "for (int i = 0; i < times && count < MAX; i++)",
        f"    {_add('number')}",
    ),
    "pair-sums": _pairs("a + b"),
    "pair-differences": _pairs("a - b"),
    "pair-maxima": _pairs("larger(a, b)"),
    # Of text.
    "initial-places": _EACH_WORD + _while(_WORD, _add("word[0] - 'a' + 1")),
    "letter-places": _LETTER + _while("islower(letter)", _add("letter - 'a' + 1"), "letter = getchar();"),
    "letter-steps": f"{_EACH_WORD}if ({_WORD.replace('==', '!=')})\n    return 1;\n"
    + _loop("for (int i = 1; word[i] != '\\0'; i++)", _add("word[i] - word[i - 1]")),
    "letter-positions": 'char letter, text[SIZE];\nif (scanf(" %c %63s", &letter, text) != 2)\n    return 1;\n'
    + _loop("for (int i = 0; text[i] != '\\0'; i++)", "if (text[i] == letter)", f"    {_add('i')}"),
    "mark-runs": "char run[SIZE];\n"
    + _while('scanf("%*[.]") != EOF && scanf("%63[x]", run) == 1', _add("(long long)strlen(run)")),
    "letter-frequencies": 'char text[SIZE], letters[SIZE] = "";\nif (scanf("%63s", text) != 1)\n    return 1;\n'
    + _loop(
        "for (int i = 0; text[i] != '\\0'; i++)",
        "char *found = strchr(letters, text[i]);",
        "if (found == NULL) {",
        "    letters[count] = text[i];",
        "    $xs[count++] = 1;",
        "} else {",
        "    $xs[found - letters]++;",
        "}",
    ),
    "numbers-among-words": "char part[SIZE];\n"
    + _while('scanf("%63s", part) == 1', "if (isdigit(part[0]))", f"    {_add('atoi(part)')}"),
    "tagged-numbers": "char tag;\nlong long number;\n"
    + _while('scanf(" %c%lld", &tag, &number) == 2', "if (tag == 'a')", f"    {_add('number')}"),
    "lengths-falling": _EACH_WORD
    + _while(
        _WORD,
        "long long length = (long long)strlen(word);",
        "int i = count++;",
        "for (; i > 0 && $xs[i - 1] < length; i--)",
        "    $xs[i] = $xs[i - 1];",
        "$xs[i] = length;",
    ),
    "line-lengths": 'int n;\nif (scanf("%d ", &n) != 1)\n    return 1;\nchar text[SIZE];\n'
    + _while("count < n && fgets(text, sizeof text, stdin) != NULL", _add('(long long)strcspn(text, "\\n")')),
    "vowel-counts": _EACH_WORD
    + _while(
        _WORD,
        "int vowels = 0;",
        "for (int i = 0; word[i] != '\\0'; i++)",
        '    vowels += strchr("aeiou", word[i]) != NULL;',
        _add("vowels"),
    ),
    "shared-letters": 'char before[SIZE], word[SIZE];\nif (scanf("%63s", before) != 1)\n    return 1;\n'
    + _while(
        _WORD,
        "int shared = 0;",
        "for (char c = 'a'; c <= 'z'; c++)",
        "    shared += strchr(before, c) != NULL && strchr(word, c) != NULL;",
        _add("shared"),
        "strcpy(before, word);",
    ),
    # Of tables.
    "row-sums": _MATRIX + _sums("n", "width", "rows[i][j]"),
    "row-maxima": _best("n", "width", "rows[i][j]", "larger", "rows[i][0]"),
    "row-sum-steps": f"{_MATRIX}long long before = 0;\n"
    + _sums("n", "width", "rows[i][j]", f"if (i > 0)\n    {_add('sum - before')}\nbefore = sum;"),
    "outer-rows": _MATRIX
    + _loop("for (int j = 0; j < width; j++)", _add("rows[0][j]"))
    + "\n"
    + _loop("for (int j = 0; j < width; j++)", _add("rows[n - 1][j]")),
    "column-sums": _MATRIX + _sums("width", "n", "rows[j][i]"),
    "column-minima": _best("width", "n", "rows[j][i]", "smaller", "rows[0][i]"),
    "chosen-column": f"{_K}{_N}{_row('row')}" + _loop(_ALL_ROWS, "read_line(row);", _add("row[k]")),
    "entry-scores": "long long score;\n" + _while('scanf(" %*[^:]:%lld", &score) == 1', _add("score")),
    "first-scores": _by_name(_add("score")),
    "lowest-scores": _by_name(_add("score"), "\n$xs[i] = smaller($xs[i], score);"),
    "last-by-name": _SCORES
    + _loop(
        f"while (count < MAX && {_ENTRY})",
        "int i = 0;",
        "while (i < count && strcmp(names[i], name) < 0)",
        "    i++;",
        "if (i == count || strcmp(names[i], name) != 0) {",
        "    for (int j = count++; j > i; j--) {",
        "        memcpy(names[j], names[j - 1], SIZE);",
        "        $xs[j] = $xs[j - 1];",
        "    }",
        "    strcpy(names[i], name);",
        "}",
        "$xs[i] = score;",
    ),
    "costs": f"{_N}long long a, b;\n" + _while('count < n && scanf("%*s %lld %lld", &a, &b) == 2', _add("a * b")),
    # What a process leaves.
    "collatz": _N.replace("int n", "long long n").replace("%d", "%lld")
    + f"{_add('n')}\n"
    + _while("n > 1", "n = n % 2 == 0 ? n / 2 : 3 * n + 1;", _add("n")),
    "prime-factors": _N + _loop("for (int d = 2; n > 1; d++)", _loop("for (; n % d == 0; n /= d)", _add("d"))),
    "halvings": _N + _loop("for (; n > 0; n /= 2)", _add("n")),
    "sums-up-to": _scan("long long", "a b n")
    + _while("a <= n", _add("a"), "long long next = a + b;", "a = b;", "b = next;"),
    "robot-places": "char turn;\nlong long steps, place = 0;\n"
    + _while(
        'scanf(" %c%lld", &turn, &steps) == 2',
        "place += turn == 'R' ? steps : -steps;",
        _add("place"),
    ),
    "stack-items": "char part[SIZE];\n"
    + _while(
        'scanf("%63s", part) == 1',
        'if (strcmp(part, "pop") != 0)',
        f"    {_add('atoi(part)')}",
        "else if (count > 0)",
        "    count--;",
    ),
    "capped-counter": f"{_K}long long level = 0, entry;\n"
    + _while('scanf("%lld", &entry) == 1', "level = smaller(k, level + entry);", _add("level")),
    "sorted-gaps": _each("line[i] - line[i - 1]", "1", before=f"{_LINE}sort(line, length);\n"),
    "sorted-distinct": f"{_LINE}sort(line, length);\n"
    + _loop("for (int i = 0; i < length; i++)", "if (i == 0 || line[i] != line[i - 1])", f"    {_add('line[i]')}"),
    "ranks": _LINE + _sums("length", "length", "line[j] < line[i]"),
    "rotated": _each("line[(i + k) % length]", before=_K + _LINE),
    "chunk-sums": f"{_K}{_LINE}"
    + "for (int i = 0; i < length; i += k) {\n    long long sum = 0;\n"
    + f"    for (int j = i; j < i + k && j < length; j++)\n        sum += line[j];\n    {_add('sum')}\n}}",
    "remainders": _each("line[i] % k", before=_K + _LINE),
    "gcds": _each("gcd(line[i], k)", before=_K + _LINE),
}
