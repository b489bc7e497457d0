"""The definitions of an answer, put into a Python file: all else in the file stays byte for byte.

An answer is compared with the file statement by statement, and those of a class with those of the class. A definition,
assignment or main guard whose syntax tree differs replaces that of the file; new ones are added next to the one that
precedes them in the answer, with the imports that they need. Nothing is deleted that the instruction does not remove by
name, and examples behind the code are left out. Only an answer that changes code outside of definitions, and has all
that the file defines, replaces the file.

Line ranges of `ast` suffice for this, so no library that keeps the whole syntax (libcst) is needed.
"""

from __future__ import annotations

import ast
import re
from difflib import SequenceMatcher

from securecoderl_edge.generation.instruction import is_named, is_removed
from securecoderl_edge.generation.statements import (
    DEFINITIONS,
    FUNCTIONS,
    MAIN,
    Statement,
    decorated_as,
    defined_in,
    free_names,
    has_new_lines,
    is_loose,
    is_stub,
    lines_in_strings,
    lines_of,
    looks_like_method,
    names_in_imports,
    newline_of,
    statements,
)
from securecoderl_edge.languages.python_source import names_imported, parse

_ELISION = re.compile(
    r"#\s*(?:\.\.\.|…)|#.*\b(?:rest of|existing code|unchanged|same as (?:before|above)|remains? the same)\b", re.I
)
# A shorter script may be replaced by a text that has none of its lines.
_SHORT = 4
# Statements as similar as this are two versions of one.
_SIMILAR = 0.6


class NoEdit(Exception):
    """An answer cannot be applied; the message is one sentence without its full stop."""


def splice(original: str, answer: str, instruction: str, module: str = "") -> str:
    """The file with the answer in it.

    Args:
        module: the name of the file as a module, which an answer may import by mistake.

    Raises:
        NoEdit: the answer does not parse, changes nothing, or would delete what the instruction does not remove.
    """
    answer = re.sub(r"\r\n?", "\n", answer).removeprefix("\ufeff")
    if not answer.strip():
        raise NoEdit("the answer has no program")
    tree, given = parse(answer), parse(original)
    if tree is None:
        raise NoEdit("the answer does not parse")
    if left_out := next((each for each in _ELISION.findall(answer) if each not in original), None):
        raise NoEdit(f"the answer leaves out code ({left_out!r})")
    try:
        if given is None or not given.body:
            edited = _whole(original, answer, instruction)
        else:
            edited = _Splicer(original, given, answer, tree, instruction, module).run()
    except RecursionError:
        raise NoEdit("the answer is nested too deeply") from None
    if parse(edited) is None:
        raise NoEdit("the edited file does not parse")
    if edited == original:
        raise NoEdit("the answer changes nothing")
    _check_none_is_lost(original, edited, instruction)
    return edited


def _check_none_is_lost(original: str, edited: str, instruction: str) -> None:
    known, left = defined_in(original), set(defined_in(edited))
    lost = [name for name in known if name not in left and not is_removed(name, instruction, known)]
    if lost:
        raise NoEdit(f"the answer would delete {', '.join(lost)}, which the instruction does not remove")


def _whole(original: str, answer: str, instruction: str) -> str:
    """The answer in place of the file, with its line ends.

    Raises:
        NoEdit: it is a part of it only.
    """
    _check_none_is_lost(original, answer, instruction)
    before, now = (names_in_imports(text) for text in (original, answer))
    if used := sorted(name for name in before - now if is_named(name, answer)):
        raise NoEdit(f"the answer leaves out the import of {', '.join(used)}")
    old = [line.strip() for line in lines_of(original) if line.strip()]
    new = {line.strip() for line in answer.split("\n")}
    if len(old) >= _SHORT and 2 * sum(line in new for line in old) < len(old):
        raise NoEdit("the answer has less than half of the file, and changes code outside of functions")
    text = answer.strip("\n") + ("\n" if original.endswith(("\n", "\r")) or not original else "")
    return text.replace("\n", newline_of(original))


class _Splicer:
    """One answer and one file, both parsed; collects changes of lines and makes them."""

    def __init__(
        self, original: str, given: ast.Module, answer: str, tree: ast.Module, instruction: str, module: str
    ) -> None:
        self._original, self._given, self._answer, self._tree = original, given, answer, tree
        self._instruction, self._module = instruction, module
        self._lines, self._theirs = lines_of(original), answer.split("\n")
        self._newline = newline_of(original)
        # (first line, line behind the last, new lines), in the order in which they were found.
        self._changes: list[tuple[int, int, list[str]]] = []
        self._new: list[str] = []

    def run(self) -> str:
        body, theirs = statements(self._given.body), self._with_methods_at_home(statements(self._tree.body))
        if self._changes_loose_code(body, theirs):
            return _whole(self._original, self._answer, self._instruction)
        for by_text in (False, True):  # differences in comments count if there are no others
            self._merge(body, theirs, 0, by_text)
            if self._changes:
                break
        self._remove_named(body)
        if not self._changes and not self._misses(body, theirs) and has_new_lines(self._theirs, self._lines):
            return _whole(self._original, self._answer, self._instruction)
        self._add_imports(body)
        return self._made()

    def _with_methods_at_home(self, theirs: list[Statement]) -> list[Statement]:
        """The answer's units without bare methods: those become changes of the class that has them."""
        classes = [node for node in self._given.body if isinstance(node, ast.ClassDef)]
        tops = {node.name for node in self._given.body if isinstance(node, DEFINITIONS)}
        kept = []
        for unit in theirs:
            node = unit.node
            homes = [each for each in classes if unit.key in {member.key for member in statements(each.body)}]
            if not isinstance(node, FUNCTIONS) or node.name in tops or not looks_like_method(node):
                if homes and is_named(unit.key, self._instruction) and unit.key not in tops:
                    raise NoEdit(f"the answer has a function {unit.key}, which is a method of {homes[0].name}")
                kept.append(unit)
                continue
            near = [each for each in homes or classes if is_named(each.name, self._instruction)]
            if len(homes) > 1 and len(near) != 1:
                raise NoEdit(f"several classes have a method {node.name}, and the instruction names none of them")
            home = homes[0] if len(homes) == 1 else near[0] if len(near) == 1 else None
            home = classes[0] if home is None and len(classes) == 1 else home
            if home is None:
                kept.append(unit)
            else:
                self._merge_class(home, [unit], by_text=False)
        return kept

    def _changes_loose_code(self, body: list[Statement], theirs: list[Statement]) -> bool:
        """Whether the answer has another version of a statement that defines nothing; what is new is an example."""
        old, new = ({ast.unparse(each.node) for each in units if is_loose(each)} for units in (body, theirs))
        if not any(unit.is_definition for unit in body):
            return bool(new - old)
        pairs = ((one, other) for one in old - new for other in new - old)
        return any(SequenceMatcher(None, *pair).ratio() > _SIMILAR for pair in pairs)

    def _misses(self, body: list[Statement], theirs: list[Statement]) -> set[str]:
        return {unit.key for unit in body if unit.is_definition} - {unit.key for unit in theirs}

    def _merge(self, body: list[Statement], theirs: list[Statement], depth: int, by_text: bool) -> None:
        """Compare the statements of a module or class with the answer's, and note the changes.

        Args:
            depth: 1 in a class.
        """
        mine: dict[str, list[Statement]] = {}
        for unit in body:
            mine.setdefault(unit.key, []).append(unit)
        others: dict[str, list[Statement]] = {}
        for unit in theirs:
            others.setdefault(unit.key, []).append(unit)
        has_all = not self._misses(body, theirs)
        anchor: Statement | None = None
        for place, unit in enumerate(theirs):
            same, found = others[unit.key], mine.get(unit.key, [])
            if not unit.key or (len(found) <= 1 and unit is not same[-1]):
                continue  # of a function that is written twice, the last counts
            if found:
                if len(found) > 1 and len(found) != len(same):
                    raise NoEdit(f"the file defines {unit.key.strip('=')} more than once")
                anchor = found[same.index(unit) if len(found) > 1 else 0]
                if unit.key != MAIN or has_all or is_named("main", self._instruction):
                    self._replace(anchor, unit, by_text)
            elif not by_text and (depth or self._is_needed(unit, theirs)):
                following = next((mine[each.key][0] for each in theirs[place:] if each.key and each.key in mine), None)
                self._add(unit, body, anchor, following, depth)

    def _is_needed(self, unit: Statement, theirs: list[Statement]) -> bool:
        """Whether a new statement of a module is more than an example: assignments, if a definition uses the name."""
        if unit.key == MAIN:
            return is_named("main", self._instruction)
        used = set().union(*(free_names(each.node) for each in theirs if each.is_definition))
        names = re.findall(r"\w+", unit.key)
        return unit.is_definition or any(name in used or is_named(name, self._instruction) for name in names)

    def _replace(self, old: Statement, new: Statement, by_text: bool) -> None:
        if is_stub(new.node) and not is_stub(old.node):
            return
        if isinstance(old.node, ast.ClassDef) and isinstance(new.node, ast.ClassDef) and self._is_open(old.node):
            if self._header(new.node) in (self._header(old.node), "[] [] []"):
                self._merge_class(old.node, statements(new.node.body), by_text)
                return
            if missing := self._misses(statements(old.node.body), statements(new.node.body)):
                raise NoEdit(f"the answer changes the header of {new.key}, but lacks {', '.join(sorted(missing))}")
        start, begin = old.start, new.start
        if self._loses_decorators(old.node, new.node):
            start = begin = -1
        is_same = ast.dump(old.node) == ast.dump(decorated_as(old.node, new.node) if start < 0 else new.node)
        start, begin = (old.node.lineno - 1, new.node.lineno - 1) if start < 0 else (start, begin)
        text = self._taken(new, begin, self._indent_at(old.node.lineno - 1))
        if is_same and not (by_text and has_new_lines(text, self._lines[start : old.end])):
            return
        if old.is_shared:
            raise NoEdit(f"{old.key.strip('=')} shares its line with another statement")
        self._put(start, old.end, text)

    def _merge_class(self, home: ast.ClassDef, members: list[Statement], by_text: bool) -> None:
        self._merge(statements(home.body), members, 1, by_text)

    def _is_open(self, node: ast.ClassDef) -> bool:
        """Whether the members of a class are on lines below its header."""
        return node.body[0].lineno > node.lineno

    def _header(self, node: ast.ClassDef) -> str:
        return " ".join(
            str([ast.dump(each) for each in part]) for part in (node.bases, node.keywords, node.decorator_list)
        )

    def _loses_decorators(self, old: ast.stmt, new: ast.stmt) -> bool:
        """Whether an answer leaves out the decorators of a function without being asked to."""
        if not (isinstance(old, FUNCTIONS) and isinstance(new, FUNCTIONS)):
            return False
        names = [each for line in old.decorator_list for each in re.findall(r"\w+", ast.unparse(line))]
        is_asked = any(is_named(each, self._instruction) for each in ("decorator", "decorators", *names))
        return bool(old.decorator_list) and not new.decorator_list and not is_asked

    def _add(
        self, unit: Statement, body: list[Statement], anchor: Statement | None, following: Statement | None, depth: int
    ) -> None:
        """Note a new definition or assignment: behind ``anchor``, else before ``following``, else behind the last."""
        inner = {
            each.name for old in body for each in ast.walk(old.node) if isinstance(each, DEFINITIONS) and is_loose(old)
        }
        if unit.key in inner:
            raise NoEdit(f"{unit.key} is defined within another statement of the file, where it cannot be replaced")
        wide = 1 if depth else 2
        blank = wide if unit.is_definition else 0
        start = unit.start
        while start and self._theirs[start - 1].lstrip().startswith("#") and unit.is_definition:
            start -= 1
        indent = self._indent_at(body[0].node.lineno - 1)
        text = self._taken(unit, start, indent)
        definitions = [each for each in body if each.is_definition]
        if anchor is None and not unit.is_definition:
            line = (body[0].end if body[0].key == '"""' else body[0].start) if depth else self._end_of_imports(body)
            self._put(line, line, text if line else [*text, ""])
        elif anchor is None and following is not None and (following.is_definition or depth):
            line = self._start_of_comments(following.start)
            self._put(line, line, [*text, *[""] * wide])
        else:
            last = anchor or (definitions[-1] if definitions and unit.key != MAIN else body[-1])
            line = last.end
            before = [""] * max(blank, wide if last.is_definition else 0)
            is_tight = line < len(self._lines) and bool(self._lines[line].strip()) and unit.is_definition
            self._put(line, line, [*before, *text, *[""] * (wide if is_tight else 0)])

    def _end_of_imports(self, body: list[Statement]) -> int:
        """The line behind the imports and the docstring at the top, else the first that is not about the whole file."""
        line = 0
        for unit in body:
            if unit.is_definition:
                break
            if unit.key == '"""' or isinstance(unit.node, (ast.Import, ast.ImportFrom)):
                line = unit.end
        if line or not body:
            return line
        first = 0
        while first < body[0].start and self._lines[first].startswith("#"):
            first += 1
        if first < body[0].start and not self._lines[first].strip():
            return first + 1
        about_file = [
            number for number in (0, 1) if re.match(r"#!|#.*coding[:=]", "".join(self._lines[number : number + 1]))
        ]
        return max(about_file, default=-1) + 1

    def _add_imports(self, body: list[Statement]) -> None:
        """Note the imports of the answer that its new code uses and the file lacks."""
        new = "\n".join(self._new)
        bound = {name for node in ast.walk(self._given) for name in names_imported(node)} | set(
            defined_in(self._original)
        )
        wanted = []
        for node in self._tree.body:
            if not isinstance(node, (ast.Import, ast.ImportFrom)) or getattr(node, "module", "") == self._module:
                continue
            missing = []
            for alias in node.names:
                name = (alias.asname or alias.name).partition(".")[0]
                if name not in bound and (name == "*" or re.search(rf"\b{re.escape(name)}\b", new)):
                    missing.append(alias)
                    bound.add(name)
            if missing:
                node.names = missing
                wanted.append(ast.unparse(node))
        if wanted:
            line = self._end_of_imports(body)
            is_after_import = (
                bool(line) and not self._lines[line - 1].lstrip().startswith("#") and self._lines[line - 1].strip()
            )
            is_docstring = body[0].key == '"""' and line == body[0].end
            before = [""] if is_docstring else []
            after = [] if is_after_import else ["", ""]
            self._changes.insert(0, (line, line, [*before, *wanted, *after]))

    def _remove_named(self, body: list[Statement]) -> None:
        """Note the removal of definitions that the instruction removes by name and the answer does not have."""
        theirs = set(defined_in(self._answer)) | {name.rpartition(".")[2] for name in defined_in(self._answer)}
        members = [
            (f"{unit.key}.", each)
            for unit in body
            if isinstance(unit.node, ast.ClassDef)
            for each in statements(unit.node.body)
        ]
        for prefix, unit in [*(("", unit) for unit in body), *members]:
            name = f"{prefix}{unit.key.partition('@')[0]}"
            is_theirs = name in theirs or unit.key in theirs
            if (
                unit.is_definition
                and not is_theirs
                and is_removed(unit.key, self._instruction, defined_in(self._original))
            ):
                end = unit.end
                while end < len(self._lines) and not self._lines[end].strip():
                    end += 1
                self._put(self._start_of_comments(unit.start), end, [])

    def _start_of_comments(self, line: int) -> int:
        """The first of the comment lines right above a line of the file, else that line."""
        while line and self._lines[line - 1].lstrip().startswith("#"):
            line -= 1
        return line

    def _indent_at(self, line: int) -> str:
        text = self._lines[line]
        return text[: len(text) - len(text.lstrip())]

    def _taken(self, unit: Statement, start: int, indent: str) -> list[str]:
        """The lines of a unit of the answer from ``start`` with another indentation; text within strings keeps its."""
        first = self._theirs[unit.node.lineno - 1]
        old = first[: len(first) - len(first.lstrip())]
        inside = set() if old == indent else lines_in_strings(unit.node)
        lines = []
        for number, line in enumerate(self._theirs[start : unit.end], start + 1):
            is_kept = number in inside or not line.strip()
            lines.append(line if is_kept else indent + line.removeprefix(old))
        return lines

    def _put(self, start: int, end: int, lines: list[str]) -> None:
        self._changes.append((start, end, lines))
        self._new += lines

    def _made(self) -> str:
        lines, newline = list(self._lines), self._newline
        ends_open = bool(lines) and not lines[-1].endswith(("\n", "\r"))
        if ends_open:
            lines[-1] += newline
        # From the bottom, so that earlier lines keep their numbers; of the same line the later change first.
        self._changes.reverse()
        self._changes.sort(key=lambda change: change[:2], reverse=True)
        for start, end, new in self._changes:
            lines[start:end] = [line + newline for line in new]
        text = "".join(lines)
        return text.removesuffix(newline) if ends_open else text
