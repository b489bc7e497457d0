"""Programs whose SQL is built from texts, with parameters instead."""

from __future__ import annotations

import contextlib
import io
import sqlite3

import pytest

from securecoderl_edge.problems.datasets.sql_parameters import with_parameters

ROWS = [(1, "Ann", 30.5), (2, "O'Neil", 40.0), (3, "Bob", 50.0)]
HEAD = "name, age = names\n"
ATTACK = ("x' OR '1'='1", "0 OR 1=1")
FORMS = [
    "execute(f\"SELECT * FROM t WHERE name = '{name}' OR age > {age}\")",
    "part = f\"name = '{name}'\"\nquery = f'SELECT * FROM t WHERE {part} OR age > {age}'\nexecute(query)",
    'execute("SELECT * FROM t WHERE name = \'" + name + "\' OR age > " + str(age))',
    "execute(\"SELECT * FROM t WHERE name = '{}' OR age > {}\".format(name, age))",
    "execute(\"SELECT * FROM t WHERE name = '{1}' OR age > {0}\".format(age, name))",
    "execute(\"SELECT * FROM t WHERE name = '{n}' OR age > {a}\".format(a=age, n=name))",
    "execute(\"SELECT * FROM t WHERE name = '%s' OR age > %s\" % (name, age))",
    "execute(f'SELECT * FROM t WHERE name = \"{name}\" OR age > {age}')",
    "execute(f\"SELECT * FROM t WHERE name LIKE '%{name}%' OR age > {age}\")",
]


def rows(program: str, *names: str) -> list[tuple[object, ...]]:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (id INTEGER, name TEXT, age REAL)")
    database.executemany("INSERT INTO t VALUES (?, ?, ?)", ROWS)
    cursor = database.cursor()
    with contextlib.redirect_stdout(io.StringIO()):
        exec(f"{HEAD}{program}", {"names": names, "cursor": cursor})
    return sorted(cursor.fetchall())


def called(form: str) -> str:
    return form.replace("execute(", "cursor.execute(")


@pytest.mark.parametrize("form", FORMS)
def test_the_rows_stay_the_same_and_an_attack_finds_none(form: str) -> None:
    program = called(form)
    secure = with_parameters(program)
    for names in (("Ann", "45"), ("Bob", "99"), ("nobody", "99")):
        assert rows(secure, *names) == rows(program, *names)
    assert len(rows(program, *ATTACK)) == 3
    assert rows(secure, *ATTACK) == []
    assert rows(secure, "O'Neil", "99") == ROWS[1:2]


@pytest.mark.parametrize("form", FORMS)
def test_nothing_of_the_unsafe_query_is_left(form: str) -> None:
    secure = with_parameters(called(form))
    assert "?" in secure
    assert not any(each in secure for each in ("{age}", "part", "+", ".format", "' %", "query"))


@pytest.mark.parametrize(
    "program",
    [
        "cursor.execute('SELECT * FROM t WHERE name = ?', (name,))",
        "cursor.execute('SELECT * FROM t')",
        "cursor.execute(query)",
        "query = f\"SELECT * FROM t WHERE name = '{name}'\"\nquery += ' LIMIT 1'\ncursor.execute(query)",
        "shell.execute(f'ls {name}')",
        "cursor.execute('SELECT %s, %s' % name)",
        "not python (",
        "",
    ],
)
def test_what_is_safe_or_not_understood_is_left_alone(program: str) -> None:
    assert with_parameters(program) == ""


@pytest.mark.parametrize("form", ["f'{%s}{%s}'", "'' + %s + %s", "'{}{}'.format(%s, %s)", "'%%s%%s' %% (%s, %s)"])
@pytest.mark.parametrize("first", ["'SELECT '", "f'SELECT {name}'"])
def test_a_text_that_doubles_in_each_line_is_read_once(first: str, form: str) -> None:
    lines = [f"q{number + 1} = {form % ((f'q{number}',) * 2)}\n" for number in range(60)]
    made = with_parameters(f"q0 = {first}\n{''.join(lines)}c.execute(f'SELECT {{q60}} {{name}}')\n")
    assert "?" in made
    assert len(made) < 1 << 20


def test_a_chain_of_variables_that_nothing_uses_is_left() -> None:
    lines = "".join(f"q{number + 1} = '' + q{number}\n" for number in range(3_000))
    assert "?" in with_parameters(f"{lines}c.execute(f'SELECT {{name}}')\n")


def test_a_variable_in_its_own_value_does_not_end_the_reading() -> None:
    assert "?" in with_parameters("def f():\n    q = f'SELECT {q}'\n    c.execute(q)")
