"""Bandit in a process of its own: stock findings, no way to silence them, failures charged in full."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from securecoderl_edge.errors import SceError
from securecoderl_edge.sandbox import security
from securecoderl_edge.sandbox.security import Finding, Scan, SecurityScanner
from securecoderl_edge.sandbox.severity import severity

SHELL = "import subprocess\nsubprocess.call('ls ' + input(), shell=True)"
PROGRAMS = {
    "nothing": "print(int(input()) * 2)",
    "shell": SHELL,
    "constant shell": "import subprocess\nsubprocess.call('ls', shell=True)",
    "aliases": "from subprocess import Popen as P\nimport os as o\no.system(input())\nP(input(), shell=True)",
    "hash": "import hashlib\nprint(hashlib.md5(b'x').hexdigest(), hashlib.new('sha1'))",
    "eval": "print(eval(input()))\nexec('x = 1')",
    "strings": "HOST = '0.0.0.0'\nPATH = '/tmp/a'\ndef f(password='hunter2'): return password == 'x'",
    "imports": "import pickle, telnetlib\nfrom xml.etree import ElementTree\npickle.loads(b'')",
    "assert and random": "import random\nassert random.random() < 2",
    "swallowed error": "try:\n    pass\nexcept Exception:\n    pass",
    "classes": "class A:\n    def f(self):\n        import yaml\n        return yaml.load(input())",
    "async": "async def f():\n    for i in []:\n        async with i: eval('1')\n    [eval(x) for x in []]",
    "sql": "q = \"SELECT * FROM t WHERE a = '%s'\" % input()\ncursor.execute(f'DELETE FROM t WHERE a = {q}')",
    "requests": "import requests, ssl\nrequests.get('x', verify=False)\nssl.wrap_socket()",
    "bidirectional text": "# \u202e hidden\nprint(1)",
    "decorators": "import os\n@(lambda f: f)\ndef g(x=os.popen('a')): return lambda: os.chmod('x', 0o777)",
    # The same name means something else after an import, or with another argument.
    "late import": "a.extractall()\nimport tarfile\na.extractall()\nimport paramiko\na.exec_command(input())",
    "dynamic imports": "__import__('os')\n__import__('pickle')\n"
    "import importlib as i\ni.import_module('json')\ni.import_module('telnetlib')",
    "match": "match input():\n    case 'a': eval('1')\n    case [x, *_]: exec(x)",
}


@pytest.fixture(scope="module")
def scanner() -> Iterator[SecurityScanner]:
    with SecurityScanner() as opened:
        yield opened


def stock_findings(program: str) -> list[Finding]:
    """What Bandit's own visitor reports, nosec comments ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # stevedore's, while it loads the plugins
        from bandit.core import config, meta_ast, metrics, node_visitor, test_set

    data = program.encode()
    numbers = metrics.Metrics()
    numbers.begin("solution.py")
    tests = test_set.BanditTestSet(config.BanditConfig(), profile={})
    visitor = node_visitor.BanditNodeVisitor(
        "solution.py", io.BytesIO(data), meta_ast.BanditMetaAst(), tests, False, {}, numbers
    )
    visitor.process(data)
    return [
        Finding(issue.test_id, issue.cwe.id, issue.severity, issue.confidence, issue.lineno)
        for issue in visitor.tester.results
    ]


@pytest.mark.parametrize("name", PROGRAMS)
def test_findings_are_those_of_stock_bandit(scanner: SecurityScanner, name: str) -> None:
    scan = scanner.scan(PROGRAMS[name])
    assert not scan.failed
    assert list(scan.findings) == stock_findings(PROGRAMS[name])


@pytest.mark.parametrize("meaning", ["os import getcwd", "importlib import import_module", "json import loads"])
def test_what_is_known_of_a_name_says_nothing_of_an_import_under_it(scanner: SecurityScanner, meaning: str) -> None:
    module, _, name = meaning.partition(" import ")
    scanner.scan(f"import {module}\n{module}.{name}('x')\n")
    disguised = f"from {meaning} as __import__\n__import__('telnetlib')\n"
    assert "B401" in {each.test_id for each in scanner.scan(disguised).findings}
    assert set(stock_findings(disguised)) <= set(scanner.scan(disguised).findings)


def test_the_programs_above_have_findings_of_every_severity(scanner: SecurityScanner) -> None:
    found = {finding.severity for program in PROGRAMS.values() for finding in scanner.scan(program).findings}
    assert found == {"LOW", "MEDIUM", "HIGH"}


def test_a_nosec_comment_silences_nothing(scanner: SecurityScanner) -> None:
    assert scanner.scan(SHELL + "  # nosec").findings == scanner.scan(SHELL).findings != ()


def test_a_coding_cookie_hides_nothing_and_adds_nothing(scanner: SecurityScanner) -> None:
    hidden = "# coding: utf-7\n# +AAoAZQB2AGEAbAAoACIAMQAiACk-\n"
    assert scanner.scan(hidden + SHELL).serious == tuple(
        Finding(each.test_id, each.cwe, each.severity, each.confidence, each.line + 2)
        for each in scanner.scan(SHELL).serious
    )


def test_a_byte_order_mark_is_dropped(scanner: SecurityScanner) -> None:
    assert scanner.scan("\ufeff" + SHELL).findings == scanner.scan(SHELL).findings


def test_deep_nesting_does_not_hide_a_finding(scanner: SecurityScanner) -> None:
    assert severity(scanner.scan(f"{SHELL}\nx = 0{'+1' * 990}")) == 1.0


@pytest.mark.parametrize("program", ["def f(:", "x = " + "-" * 200_000 + "1", "\x00", "print('\ud800')"])
def test_what_bandit_cannot_read_counts_as_the_worst(scanner: SecurityScanner, program: str) -> None:
    scan = scanner.scan(program)
    assert scan.failed
    assert severity(scan) == 1.0


def test_a_worker_that_is_killed_costs_no_program_its_findings() -> None:
    with SecurityScanner() as scanner:
        expected = scanner.scan(SHELL)
        assert expected.findings
        assert scanner._process is not None
        scanner._process.kill()
        scanner._process.wait()
        assert scanner.scan(SHELL) == expected


def test_a_program_that_its_worker_dies_of_counts_as_the_worst_and_costs_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with SecurityScanner() as scanner:
        send, starts = scanner._send, []

        def kill(process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
            starts.append(process.pid)
            if message["program"] == "deadly":
                process.kill()
            send(process, message)

        monkeypatch.setattr(scanner, "_send", kill)
        assert scanner.scan("deadly") == Scan(failed=True)
        assert scanner.scan("print(1)") == Scan()
        assert len(set(starts)) == 3


@pytest.mark.parametrize("slight", ["assert 1", "os.system('ls')", "import Crypto"])  # the last is a known false alarm
def test_many_slight_findings_hide_no_other(scanner: SecurityScanner, slight: str) -> None:
    scan = scanner.scan(f"import os\n{f'{slight};' * 10_500}\nos.system(input())\ne = exec\ne(input())\n")
    assert [(each.test_id, each.line) for each in scan.serious] == [("B605", 3), ("B102", 5)]


def test_a_long_number_makes_no_scan_fail(scanner: SecurityScanner) -> None:
    assert scanner.scan(f"x = {'9' * 50_000}") == Scan()
    assert scanner.scan(f"{SHELL}\nx = {'9' * 50_000}") == scanner.scan(SHELL)


@pytest.mark.parametrize("harmless", ["x = '\U0001f600{}'", "\U00010428{}()", "x.{}.\U00010428{}()"])
def test_long_texts_leave_the_next_program_its_memory(harmless: str) -> None:
    with SecurityScanner() as scanner:
        for number in range(40):
            text = f"{'x' * (1 << 20)}{number}"  # of four bytes a character, with the other one
            assert scanner.scan(harmless.replace("{}", text)) == Scan()
        sizes = [line.split()[1] for line in Path(f"/proc/{scanner.pids()[0]}/status").read_text().splitlines()
                 if line.startswith("VmRSS:")]  # fmt: skip
        assert int(sizes[0]) < 150 << 10


def test_a_scan_that_takes_too_much_processor_time_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    with SecurityScanner() as scanner:
        send, starts = scanner._send, []

        def limit(process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
            starts.append(process.pid)
            os.kill(process.pid, signal.SIGPROF)
            send(process, message)

        monkeypatch.setattr(scanner, "_send", limit)
        assert scanner.scan("print(1)").failed
        assert len(starts) == 1


def test_a_worker_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with SecurityScanner() as scanner:
        scanner.scan("print(1)")
        assert scanner._process is not None
        os.kill(scanner._process.pid, signal.SIGSTOP)
        threads = Path(f"/proc/{scanner._process.pid}/task")
        while any(path.read_text().rpartition(")")[2].split()[0] != "T" for path in threads.glob("*/stat")):
            pass  # until all of it has stopped
        monkeypatch.setattr(security, "ANSWER_SECONDS", 0.05)
        assert scanner.scan("print(1)").failed
        monkeypatch.undo()
        assert scanner.scan("print(1)") == Scan()


def test_the_process_that_parses_hostile_text_is_locked_down(scanner: SecurityScanner) -> None:
    scanner.scan("print(1)")
    status = Path(f"/proc/{scanner.pids()[0]}/status").read_text()
    assert "Seccomp:\t2" in status
    assert "NoNewPrivs:\t1" in status


def test_a_bandit_that_cannot_start_is_an_error_and_no_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.path", [])
    with SecurityScanner() as scanner, pytest.raises(SceError, match="bandit"):
        scanner.scan("print(1)")


def test_many_threads_may_share_a_scanner(scanner: SecurityScanner) -> None:
    wrong: list[str] = []

    def check(name: str) -> None:
        if scanner.scan(PROGRAMS[name]).findings != expected[name]:
            wrong.append(name)

    expected = {name: scanner.scan(program).findings for name, program in PROGRAMS.items()}
    threads = [threading.Thread(target=check, args=(name,)) for name in PROGRAMS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


HIDDEN = {
    "B307": [
        "if 0:\n    from math import sqrt as eval\nprint(eval(input()))",
        "class A:\n    from math import sqrt as eval\nprint(eval(input()))",
        "try:\n    from math import nothing as eval\nexcept ImportError: pass\nprint(eval(input()))",
        "from math import sqrt as eval\ndel eval\nprint(eval(input()))",
        "from math import sqrt as eval\nglobals().pop('eval')\nprint(eval(input()))",
        "import builtins\nprint(builtins.eval(input()))",
        "from builtins import eval as e\nprint(e(input()))",
        "print(__builtins__.eval(input()))",
        "e = eval\nprint(e(input()))",
        "import hmac\nhmac.new(b'', input(), eval)",
        "a, (b, e) = 1, (2, eval)\nprint(e(input()))",
        "print((e := eval)(input()))",
        "def f(x, *, e=eval): return e(x)\nprint(f(input()))",
        "class A:\n    e = eval\nprint(A.e(input()))",
        "class A: pass\nA.e = eval\nprint(A.e(input()))",
        "import builtins\nprint(getattr(builtins, 'eval')(input()))",
        "x = eval\ny = x\nz = y\nprint(z(input()))",
        "x = (e := eval)\nprint(x(input()))",
        "print((eval if input() else len)(input()))",
        "e = None or eval\nprint(e(input()))",
        "for e in [len, eval]:\n    print(e(input()))",
        "for a, e in ((1, eval),):\n    print(e(input()))",
        "print([e(input()) for e in (eval,)])",
        "print(eval.__call__(input()))",
        "print(__builtins__['eval'](input()))",
        "import sys\ne = sys.modules['builtins'].eval\nprint(e(input()))",
        "import sys\nsys.modules['builtins'].eval(input())",
        "import sys\nsys.modules.get('builtins').eval(input())",
        "[eval][0](input())",
        "(len, eval)[-1](input())",
        "{'e': eval}.get(input(), len)(input())",
        "e = {'e': eval}\ne['e'](input())",
        "e = {}\ne['e'] = eval\ne['e'](input())",
        "[[eval]][0].pop()(input())",
        "all = [len, eval]\nfor e in all: e(input())",
        "all = len, eval\na, e = all\ne(input())",
        "match eval:\n    case e: print(e(input()))",
        "match [len, eval], 1:\n    case [_, *e], 1: e[0](input())",
        "match {'e': eval}:\n    case {'a': 1} | {**e}: e['e'](input())",
        "match eval:\n    case object() as e if e(input()): pass",
        "*e, a = eval, 1\ne[0](input())",
        "*_, e = 1, 2, eval\ne(input())",
        "a, b, e = *(1, 2), eval\ne(input())",
        "for *_, (e, a) in [(1, 2, (eval, 3))]: e(input())",
        "class A:\n    def __init__(self): self.all = [eval]\nA().all[0](input())",
        "class A: eval = eval\nA.eval(input())",
        "e = []\ne += [eval]\ne[0](input())",
        "e = {'a': len} | {'e': eval}\ne['e'](input())",
        "for e in [len] + [eval] * 2: print(e(input()))",
        "class A: e = eval\nA.__dict__['e'](input())",
        "class A: __call__ = eval\nA()(input())",
        "class A: pass\nA.__call__ = eval\nA()(input())",
        "globals()['e'] = eval\ne(input())",
        "globals()['__builtins__'].eval(input())",
        "import builtins\nvars(builtins)['eval'](input())",
        "import builtins\nbuiltins.__dict__.get('eval')(input())",
        "import builtins\ngetattr(builtins, 'ev' + 'al')(input())",
        "import builtins\ngetattr(builtins, f'{\"ev\"}al')(input())",
        "import builtins\nn = 'lave'[::-1]\ngetattr(builtins, n)(input())",
        "import builtins\ngetattr(builtins, ''.join(['ev', 'al']))(input())",
        "import builtins\ngetattr(builtins, '%s%s' % ('ev', 'al'))(input())",
        "import builtins\nend = 'al'\ngetattr(builtins, 'ev{}'.format(end))(input())",
        "import builtins\ngetattr(builtins, '{1}{0}'.format('al', 'ev'))(input())",
        "import builtins\ngetattr(builtins, '{a}{b}'.format(a='ev', b='al'))(input())",
        "import builtins\nform = '%(a)s%(b)s'\ngetattr(builtins, form % {'a': 'ev', 'b': 'al'})(input())",
        "i = __import__\ni('built' + 'ins').eval(input())",
        "list(map(eval, [input()]))",
        "list(map((e := eval), [input()]))",
        "list(map({'e': eval}.get('e'), [input()]))",
        "sorted([input()], key=eval)",
        "e = eval\nfrom functools import partial\npartial(e, input())()",
        "import threading\nthreading.Thread(target=eval, args=(input(),)).start()",
        "def f(): return eval\nf()(input())",
        "(lambda: eval)()(input())",
        "def f():\n    yield eval\nfor e in f(): e(input())",
        "def f():\n    yield from [eval]\nfor e in f(): e(input())",
        "for e in (eval for _ in 'a'): e(input())",
        "import os\nos.__builtins__['eval'](input())",
        "import inspect\ninspect.builtins.eval(input())",
        "import enum\nenum.bltns.eval(input())",
        "from codecs import builtins as b\nb.eval(input())",
        "def f(): pass\nf.__builtins__['eval'](input())",
        "import builtins\nmatch builtins:\n    case object(eval=e): e(input())",
        "if 0: __builtins__ = b\nprint(__builtins__.eval(input()))",
        "print(print.__self__.eval(input()))",
        "f = getattr(print, '__se' + 'lf__')\nf.eval(input())",
        "(lambda: 0).__builtins__['eval'](input())",
        "def f(): pass\nf.__globals__['__builtins__'].eval(input())",
        "(i for i in ()).gi_frame.f_builtins['ev' + 'al'](input())",
        "class A: e = eval\ngetattr(A, 'e')(input())",
        "import builtins\nif 0: n = 'x'\nn = 'ev'\ngetattr(builtins, f'{n}al')(input())",
        "import builtins\nn = 'x'\nn = 'ev'\ngetattr(builtins, ''.join((n, 'al')))(input())",
        "import builtins\nfor n in 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'eval': getattr(builtins, n)(input())",
        "getattr(re.enum.bltns, 'ev' + 'al')(input())",  # some tests define `re`
        "class A:\n    def __init_subclass__(cls, f): f(input())\nclass B(A, f=eval): pass",
    ],
    "B605": [
        "import os\ndef _(): import math as os\nos.system(input())",
        "print(__import__('os').system(input()))",
        "import importlib\nimportlib.import_module('os').system(input())",
        "from os import system as run\nif 0: from math import sqrt as run\nrun(input())",
        "import os\ns = os.system\ns(input())",
        "from os import *\nsystem(input())",
        "def f():\n    import sys\n    sys.modules['os'].system(input())",
        "import posix\nposix.system(input())",
        "import shutil\nshutil.os.system(input())",
        "import random\nrandom._os.system(input())",
        "import importlib\nimportlib.import_module(package=None, name='os').system(input())",
        "import os\ngetattr(os, 'sys' + 'tem')(input())",
        "import os\nvars(os)['system'](input())",
        "import os\nlist(map(os.system, [input()]))",
        "import os\nlist(map(getattr(os, 'system'), [input()]))",
        "import os\ndef f(): return getattr(os, 'system')\nf()(input())",
        "import os\ns = os.__getattribute__('sys' + 'tem')\ns(input())",
        "class A: import os\nA.os.system(input())",
        "class A: from os import system as s\nA.s(input())",
        "import os\nos.system(command=input())",
        "from importlib import import_module as i\ni('os').system(input())",
        "import subprocess\nsubprocess.sys.modules['os'].system(input())",
        "import collections\ncollections._sys.modules['os'].system(input())",
        "import random\nrandom.seed.__globals__['_os'].system(input())",
        "print.__self__.__import__('os').system(input())",
        "import builtins, os\ns = builtins.getattr(os, 'system')\ns(input())",
        "import builtins, os\nnames = builtins.vars(os)\nnames['system'](input())",
        "from importlib import *\nimport_module('os').system(input())",
        "from os import *\nlist(map(system, [input()]))",
        "for each in object.__subclasses__(): each.__init__.__globals__['sys'].modules['os'].system(input())",
        # Some tests define these modules for the program.
        "def f(text): return sys.modules['os'].system(text)",
        "def f(text): return random._os.system(text)",
        "getattr(random, '_o' + 's').system(input())",
    ],
    "B301": [
        "from pickle import *\nloads(input().encode())",
        "import pickle\nif 0: import json as pickle\npickle.loads(input().encode())",
        "import _pickle\n_pickle.loads(input().encode())",
        "import pickle\nclass U(pickle.Unpickler): pass\nU(open(0, 'rb')).load()",
    ],
    "B324": [
        "import hashlib\nif 0: import zlib as hashlib\nprint(hashlib.md5(b'').hexdigest())",
        "import hashlib\nkind = 'md' + '5'\nhashlib.new(kind, b'')",
        *(
            f"import hashlib\nimport sys\n{own}\nprint({name}(hashlib.md5, b''))"
            for own, name in (
                ("if 0: from hmac import new as f\ndef f(h, x): return h(x)", "f"),
                ("from hmac import new as f\nf = lambda h, x: h(x)", "f"),
                ("if 0: import hmac\nclass hmac:\n    def new(h, x): return h(x)", "hmac.new"),
                ("import hmac\nhmac.new = lambda h, x: h(x)", "hmac.new"),
                ("import hmac\nother = hmac\nother.new = lambda h, x: h(x)", "hmac.new"),
                ("import hmac\nhmac.__dict__['new'] = lambda h, x: h(x)", "hmac.new"),
                ("import hmac\nsetattr(hmac, 'new', lambda h, x: h(x))", "hmac.new"),
                ("sys.modules['hmac'] = sys.modules['__main__']\nimport hmac\ndef new(h, x): return h(x)", "hmac.new"),
                ("import hmac\nfor hmac in all: pass", "hmac.new"),
                ("import hmac\nmatch all:\n    case {'a': 1, **hmac}: pass", "hmac.new"),
            )
        ),
        "import hashlib, hmac\ndef f(hmac): return hmac.new(hashlib.md5, b'')",
    ],
    "B506": [
        "from yaml import load\nload(input())",
        "from yaml import Loader, load as l\nl(input(), Loader=Loader)",
        f"if 0: import {', '.join(f'a{number}' for number in range(99))}\nimport yaml\ny = yaml.load\ny(input())",
    ],
    "B614": ["from torch import load\nload(input())", "import torch.nn\ntorch.load(input())"],
    "B202": ["from tarfile import open as t\nwith t(input()) as f: f.extractall()"],
    "B602": [
        "import subprocess\nif 0: import math as subprocess\nsubprocess.call(input(), shell=True)",
        "import subprocess\nsubprocess.Popen(input(), -1, None, None, None, None, None, True, True)",
        "import subprocess\nsubprocess.run(*[input(), -1, None, None, None, None, None, True, True])",
        "import subprocess\nsubprocess.run(args=input(), shell=True)",
        "import subprocess\nsubprocess.run(input(), **{'shell': True})",
        "import subprocess\nsubprocess.run(input(), **dict(shell=True))",
        "import subprocess\nhow = {'shell': True}\nsubprocess.run(input(), **how)",
        "import subprocess\nhow = {}\nhow['shell'] = True\nsubprocess.run(input(), **how)",
        "import subprocess\nkey = 'ell'\nsubprocess.run(input(), **{**{}, 'sh' + key: True})",
        "import subprocess\n[subprocess.run][0](input(), shell=True)",
        "import subprocess\nclass P(subprocess.Popen): pass\nP(input(), shell=True)",
        "import subprocess\nfrom functools import partial\npartial(subprocess.run, shell=True)(input())",
        "import subprocess\nfrom threading import Thread\n"
        "Thread(target=subprocess.run, args=[input()], kwargs={'shell': True}).start()",
    ],
}


@pytest.mark.parametrize("length", [1, 8, 17, 60])
@pytest.mark.parametrize("first", ["eval", "os.system"])
def test_a_chain_of_names_hides_nothing(scanner: SecurityScanner, first: str, length: int) -> None:
    chain = "\n".join(f"a{number} = a{number - 1}" for number in range(1, length))
    assert scanner.scan(f"import os\na0 = {first}\n{chain}\na{length - 1}(input())\n").findings


@pytest.mark.parametrize(("kind", "program"), [(kind, each) for kind, programs in HIDDEN.items() for each in programs])
def test_another_meaning_of_a_name_hides_nothing(scanner: SecurityScanner, kind: str, program: str) -> None:
    assert kind in {finding.test_id for finding in scanner.scan(program).findings}


@pytest.mark.parametrize(
    "program",
    [
        "import os\ns = os.system\nos.system('ls'); s(input())",
        "import subprocess\nr = subprocess.run\nsubprocess.run('ls', shell=True); r(input(), shell=True)",
        "import subprocess\nr = subprocess.run\nsubprocess.run('', env=\nr(input(),\nshell=True), shell=True)",
        "import os\nif 0: from os import system\ndef system(a, f, b): f(b)\nsystem('', os.popen, input())",
        "import subprocess\nif 0: from subprocess import run\n"
        "def run(a, f, b, shell): f(b, shell=shell)\nrun('', subprocess.call, input(), shell=True)",
    ],
)
def test_a_slight_finding_hides_no_serious_one_of_its_check_in_the_same_line(
    scanner: SecurityScanner, program: str
) -> None:
    found = [each for each in scanner.scan(program).findings if each.test_id in ("B602", "B605")]
    assert {each.line for each in found} == {found[0].line}
    assert {each.severity for each in found} == {"LOW", "HIGH"}


def test_each_call_counts_also_where_several_are_in_a_line(scanner: SecurityScanner) -> None:
    assert len(scanner.scan("e = eval\neval(input()); e(input())").findings) == 2


@pytest.mark.parametrize(
    "program",
    [
        "from ast import literal_eval as eval\nprint(eval(input()))",
        "import math\nroot = math.sqrt\nprint(root(4))",
        "import hashlib, hmac\nh = hashlib.sha1\nprint(hmac.new(b'', b'', h), hmac.digest(b'', b'', hashlib.md5))",
        "import hashlib\ndef f(self, new):\n    import hmac\n    self.digest = hmac.new(b'', b'', hashlib.md5)",
        "def load(text): return text\nloads = load\nprint(loads(input()))",
        "a = b\nb = a\na()",
        "from math import *\nfrom heapq import *\nfor e in [sqrt, len]:\n    print(e(4), floor(2.5) or heappop([1]))",
        "calls = {'eval': len}\nprint(calls['eval'](input()))",
        "calls = {'a': len, 'b': eval}\nprint(calls['a'](input()))",
        "calls = [len, eval]\nprint(calls[0](input()))",
        "f = print\nf = f\nf(1)",
        "import os\nmatch os.path, 1:\n    case p, n if n: print(p.join('a', 'b'))",
        "for mode in ('train', 'eval'):\n    getattr(model, mode)(1)\n    step.__self__.eval(1)",
        "import builtins\nprint(getattr(builtins, 'le' + 'n')(input()), isinstance(input, type(eval)))",
        "import math\nprint(list(map(math.sqrt, [4])), sorted([], key=math.sqrt), *map(int, input().split()))",
        "import os\nprint(os.path.join(*['a', 'b'], **{}), os.environ.get('system'))",
        "import math\ntotal = 0\nfor x in range(9): total += math.sqrt(x) + x\nprint(total)",
        "class A:\n    len = len\n    def f(self): return self.len(input())",
        "import math\nclass A: import math\nA.__len__ = A.math.sqrt\nprint(*map(getattr(math, 'sqrt'), [4]))",
        "extra = {}\ndef f(**extra): print(extra)\nf(**extra)",
        "calls = {}\ncalls['a'], calls['b'] = len, eval\nprint(calls['a'](input()), '%d' % 1, '{0.x}'.format(1))",
        "*a, b = 1, 2, len\nprint(b(input()))",
        "from yaml import SafeLoader, load\nload(input(), Loader=SafeLoader)\nload(input(), SafeLoader)",
        "from tarfile import is_tarfile\nis_tarfile(input())",
        "import sys\nprint(sys.maxsize, sys.stdin.readline(), *sys.argv)\nclass A(dict, total=len): pass",
    ],
)
def test_names_with_a_harmless_meaning_are_no_finding(scanner: SecurityScanner, program: str) -> None:
    assert scanner.scan(program).findings == ()


def test_names_without_end_are_looked_at_once(scanner: SecurityScanner) -> None:
    program = "\n".join(f"a{number} = a{number + 1} = a{number + 2}.b" for number in range(500)) + "\na0()\n" * 500
    assert not scanner.scan(program).failed


@pytest.mark.parametrize(
    "line",
    [
        "a{0} = a{1} + a{2}",
        "a{0} = a{1} or a{2}",
        "a{0} = a{1}[a{2}]",
        "a{0} = [a{1}, a{2}]",
        "a{0} = a{1}.get(a{2}, a{1})",
        "a{0} = getattr(a{1}, a{2} + 'b' + a{1}, a{2})",
        "a{0}.b = [f'{{a{1}.b}}{{a{2}}}'][::-1]",
        "a{0}[a{1}] = a{2}(a{1}, *a{0}, **a{2})",
        "a{0} += a{1} + [a{2}] * 2 | a{1}",
        "match a{0}, a{1}:\n    case a{1}, [a{0}, *a{2}]: a{2}()",
    ],
)
def test_names_that_mean_each_other_in_many_ways_are_looked_at_once(scanner: SecurityScanner, line: str) -> None:
    program = "\n".join(line.format(number, (number * 7 + 1) % 97, (number * 5 + 3) % 89) for number in range(300))
    assert not scanner.scan(f"import os\n{program}\na0 = 'x'\n" + "a0(a1)[a2](a3, *a4, **a5)\n" * 300).failed
