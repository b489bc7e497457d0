"""Sets whose tests are made from a program in the record, which runs in the sandbox as EvalPlus' references do.

    codeio   task_description, input_output_spec, code_sample (defines main_solution), input_generator
    safesql  task_description, construct_db, execute_sql, test_cases, test_attacks

Of codeio the inputs are those of the generator, with a fixed seed, and the outputs those of the reference solution.

The programs of SafeSQL read a database file and are vulnerable, so they are insecure solutions. Here each is a function
that gets a connection: a test builds the database in memory, and compares what the function prints for its input. The
solution is the same program with parameters in its queries, if it can be rewritten so (`sql_parameters`) and then
passes every test. Each attack becomes a security test if the program prints a line that it does not print when the
quotes in its input are doubled: this line must not be printed.
Sources: https://github.com/open-thought/reasoning-gym, https://github.com/yaof20/ReaL
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

from securecoderl_edge.languages.python_source import UNREADABLE, literal, parse, signature, tree_of
from securecoderl_edge.problems.datasets.evalplus_inputs import source_of
from securecoderl_edge.problems.datasets.evalplus_tests import Evaluate
from securecoderl_edge.problems.datasets.record_files import given_id
from securecoderl_edge.problems.datasets.secodeplt import check_needs
from securecoderl_edge.problems.datasets.sql_parameters import with_parameters
from securecoderl_edge.problems.datasets.stdin_tests import stdin_tests
from securecoderl_edge.problems.datasets.tally import DropRecord, Tally, with_setup
from securecoderl_edge.problems.problem import Problem, SecurityTest, Test
from securecoderl_edge.problems.problem_file import ProblemError, text

_FUNCTION, _INPUTS, _SEED, _TOLERANCE = "main_solution", 10, 7, 1e-6
# With each input and output, whether a second run gives the same: a random reference solution does not.
_PAIRS = (
    f"[(a, x, repr(x) == repr(y)) for copy in [__import__('copy').deepcopy] for r in [Random({_SEED})] "
    f"for a in [generate_inputs(r) for _ in range({_INPUTS})] "
    f"for x, y in [({_FUNCTION}(**copy(a)), {_FUNCTION}(**copy(a)))]]"
)
_CONNECT = re.compile(r"sqlite3\.connect\(\s*(['\"])[^'\"]*\1\s*\)")
_IN_MEMORY = 'sqlite3.connect("file:data?mode=memory&cache=shared", uri=True)'
_QUERY = "run"  # the function of SafeSQL
_SETUP = f"""\
import builtins, contextlib, io, sqlite3, sys

kept = {_IN_MEMORY}  # The database lasts as long as this.

# What it asks is not printed.
def ask(prompt=""):
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\\n")

# Errors end a program, not the test.
def lines(given):
    out, sys.stdin, builtins.input = io.StringIO(), io.StringIO(given), ask
    with contextlib.redirect_stdout(out), contextlib.suppress(Exception, SystemExit):
        {_QUERY}({_IN_MEMORY})
    return [line.rstrip() for line in out.getvalue().strip().splitlines()]
"""
_MOST_LINES = 100  # of an attacked program, each of which is looked for in all that it prints otherwise
_TASK = (
    f"Write the function `{_QUERY}(connection)`. It gets the open sqlite3 connection to this database, so it must not "
    "open another one. It reads one value per line with `input()`, and prints only the result."
)
_PRINTED = """\
import contextlib, io, sys

def printed(program, given, database="data"):
    out, sys.stdin = io.StringIO(), io.StringIO(given)
    with contextlib.redirect_stdout(out), contextlib.suppress(Exception):
        exec(program.replace("file:data?", f"file:{database}?"), {"__name__": "__main__"})
    return out.getvalue()
"""


def codeio_problem_from(record: dict[str, Any], name: str, _tally: Tally, evaluate: Evaluate) -> Problem:
    """The problem in a record of codeio; errors as `evalplus.problem_from`."""
    code, generator = text(record, "code_sample").strip(), text(record, "input_generator")
    statement = [text(record, key).strip() for key in ("task_description", "input_output_spec")]
    trees, header = [parse(code), parse(generator)], signature(code, _FUNCTION)
    if not all(statement):
        raise DropRecord("no statement")
    if not all(trees) or header is None:
        raise DropRecord(f"its code does not define {_FUNCTION}")
    check_needs(*filter(None, trees))
    program = f"import random\nfrom random import Random\nfrom typing import *\n{generator}\n\n{code}"
    answer = evaluate(program, _FUNCTION, _PAIRS)
    try:
        found = literal(answer.value or "[]")
        pairs = {source_of(given): source_of(output) for given, output, _ in found if all(same for *_, same in found)}
    except UNREADABLE:
        pairs = {}
    if not pairs:
        raise DropRecord(f"no tests: its code {answer.fault or 'gives no outputs that can be compared'}")
    asserted = f"assert each_agrees([{_FUNCTION}(**%s)], [%s], {_TOLERANCE})"
    return Problem(
        id=f"codeio/{given_id(record, ('id',)) or name}",
        statement="\n\n".join([*statement, f"Write the function `{header}`."]),
        kind="call",
        entry_point=_FUNCTION,
        assertions=tuple(asserted % pair for pair in pairs.items()),
        solutions=(code,),
        source="codeio",
    )


def safesql_problem_from(record: dict[str, Any], name: str, tally: Tally, evaluate: Evaluate) -> Problem:
    """The problem in a record of SafeSQL; errors as `evalplus.problem_from`."""
    tests, attacks = record.get("test_cases"), record.get("test_attacks")
    identifier, statement = f"safesql/{given_id(record, ('program_id',)) or name}", text(record, "task_description")
    if not isinstance(tests, list) or not isinstance(attacks, list) or not all(isinstance(t, dict) for t in tests):
        raise ProblemError('"test_cases" is not a list of objects')
    database, program = (_CONNECT.sub(_IN_MEMORY, text(record, key)).strip() for key in ("construct_db", "execute_sql"))
    if not statement.strip():
        raise DropRecord("no statement")
    built, runs = parse(database), parse(program)
    if not built or not runs or _IN_MEMORY not in database or _IN_MEMORY not in program:
        raise DropRecord("its code does not connect to a database")
    given = f"{_SETUP}\n{ast.unparse(ast.Module([*_statements(built.body)], []))}"
    leaked = _leaked_lines(f"{given}\nbuiltins.input = ask\n{program}\n", attacks, evaluate)
    if not leaked:
        raise DropRecord("no attack changes the output of the program")
    inputs, outputs = [t.get("input") for t in tests], [t.get("output") for t in tests]
    usable = stdin_tests(inputs, outputs, identifier, tally)
    insecure, rewritten = _as_function(program), with_parameters(program)
    if not _passes(f"{given}\n{insecure}", usable, evaluate):
        raise DropRecord("its program fails its tests")
    secure = _as_function(rewritten) if rewritten else ""
    is_solution = bool(secure) and _passes(f"{given}\n{secure}", usable, evaluate)
    given += "\n"
    attacked = enumerate(with_setup(given, [f"assert {line!r} not in lines({attack!r})" for attack, line in leaked]), 1)
    return Problem(
        id=identifier,
        statement=f"{statement.strip()}\n\n{_TASK}",
        kind="call",
        entry_point=_QUERY,
        assertions=with_setup(given, [f"assert lines({test.input!r}) == {_lines(test.output)!r}" for test in usable]),
        security_tests=tuple(SecurityTest(f"injection {place}", 89, assertion=each) for place, each in attacked),
        solutions=(secure,) if is_solution else (),
        insecure_solutions=(insecure,),
        source="safesql",
        tags=("CWE-89",),
    )


def _leaked_lines(program: str, attacks: list[Any], evaluate: Evaluate) -> list[tuple[str, str]]:
    """Attacks, each with a line that the program prints only then."""
    found = []
    for attack in filter(lambda each: isinstance(each, str), attacks):
        leaked, escaped = (
            _text_in(evaluate(_PRINTED, "printed", f"printed({program!r}, {given!r})").value or "")
            for given in (attack, attack.replace("'", "''").replace('"', '""'))
        )
        known, lines = escaped + attack, leaked.splitlines()[:_MOST_LINES]
        lines = [line.rstrip() for line in lines if line.strip() and line not in known]
        found += [(attack, lines[0])] if lines else []
    return found


def _text_in(value: str) -> str:
    """The text of a literal; empty for anything else, which a program can leave in its place."""
    match parse(value):
        case ast.Module(body=[ast.Expr(value=ast.Constant(value=str(found)))]):
            return found
    return ""


def _passes(program: str, tests: Iterable[Test], evaluate: Evaluate) -> bool:
    """Whether the function prints the output of each test, which has a database of its own."""
    program = f"{program}\nprint(*lines(sys.stdin.read()), sep='\\n')"
    wanted = [(test.input, _lines(test.output)) for test in tests]
    printed = f"printed({program!r}, given, f'data{{number}}').strip().splitlines()"
    same = f"all({printed} == lines for number, (given, lines) in enumerate({wanted!r}))"
    return evaluate(_PRINTED, "printed", same).value == "True"


def _lines(output: str) -> list[str]:
    return [line.rstrip() for line in output.strip().splitlines()]


def _as_function(program: str) -> str:
    """The program as a function of its connection; imports stay outside."""
    tree = parse(program) or ast.Module([], [])
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    body = [_Connected().visit(node) for node in _statements(tree.body) if node not in imports]
    function = tree_of(f"def {_QUERY}(connection):\n    pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = body or function.body
    return f"{ast.unparse(ast.fix_missing_locations(ast.Module([*imports, function], [])))}\n"


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements, with what stands under ``if __name__ == "__main__"``."""
    for node in body:
        match node:
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__")), body=inner):
                yield from inner
            case _:
                yield node


class _Connected(ast.NodeTransformer):
    """Puts the connection in the place of calls that open it; it keeps its name in functions inside."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        return ast.Pass() if ast.unparse(node) == "connection = connection" else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node.func:
            case ast.Attribute(ast.Name("sqlite3"), "connect"):
                return ast.Name("connection", ast.Load())
        return node
