"""The definitions of an answer, put into a Python file: all else in the file stays byte for byte.

An answer is compared with the file statement by statement, and those of a class with those of the class. A definition,
assignment or main guard whose syntax tree differs replaces that of the file; new ones are added next to the one that
precedes them in the answer, with the imports that they need. Examples behind the code are left out. Only an answer that
has another version of code outside of definitions changes that code. `losses` then compares the file before and after:
nothing is deleted that the instruction does not remove by name, and what is unclear is no edit.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from difflib import SequenceMatcher, get_close_matches

from securecoderl_edge.generation.changes import Changes
from securecoderl_edge.generation.instruction import as_renamed, asks_to_remove, is_named, is_removed, new_name
from securecoderl_edge.generation.losses import NoEdit, bound, check_nothing_is_lost, left_out, start_of_comments
from securecoderl_edge.generation.new_imports import end_of_imports, missing_imports
from securecoderl_edge.generation.statements import (
    DEFINITIONS,
    FUNCTIONS,
    MAIN,
    Statement,
    decorated_as,
    defined_in,
    elision,
    end_of_header,
    free_names,
    has_new_lines,
    has_open_body,
    header_of,
    is_loose,
    is_stub,
    looks_like_method,
    named_as,
    nested_in,
    newline_of,
    parameters_of,
    statements,
    trailing_comment,
)
from securecoderl_edge.languages.python_source import parse

# A shorter script may be replaced by a text that has none of its lines.
_SHORT = 4
# Statements as similar as this are two versions of one.
_SIMILAR = 0.6
_MAIN_GUARD = r"__main__|main[- ](?:guard|block)"
_ASYNC = r"\b(?:async|sync|await|coroutine)|synchronous"


def splice(original: str, answer: str, instruction: str, module: str = "") -> str:
    """The file with the answer in it.

    Args:
        module: the name of the file as a module, which an answer may import by mistake.

    Raises:
        NoEdit: the answer does not parse, changes nothing, or would delete what the instruction does not remove; or it
            is unclear what it changes.
    """
    answer = re.sub(r"\r\n?", "\n", answer).removeprefix("\ufeff")
    if not answer.strip():
        raise NoEdit("the answer has no program")
    tree, given = parse(answer), parse(original)
    if tree is None:
        raise NoEdit("the answer does not parse")
    if comment := elision(answer, original):
        raise NoEdit(f"the answer leaves out code ({comment!r})")
    try:
        if given is None or not given.body:
            edited = _with_ends_of(original, answer)
        else:
            edited = _Splicer(original, given, answer, tree, instruction, module).run()
        if parse(edited) is None:
            raise NoEdit("the edited file does not parse")
        if edited == original:
            raise NoEdit("the answer changes nothing")
        check_nothing_is_lost(original, edited, instruction)
    except RecursionError:
        raise NoEdit("the answer is nested too deeply") from None
    return edited


def _with_ends_of(original: str, answer: str) -> str:
    """The answer in place of the file, with its line ends."""
    text = answer.strip("\n") + ("\n" if original.endswith(("\n", "\r")) or not original else "")
    return text.replace("\n", newline_of(original))


class _Splicer:
    """One answer and one file, both parsed; collects changes of lines and makes them."""

    def __init__(
        self, original: str, given: ast.Module, answer: str, tree: ast.Module, instruction: str, module: str
    ) -> None:
        self._original, self._given, self._answer, self._tree = original, given, answer, tree
        self._instruction, self._module = instruction, module
        self._changes = Changes(original, answer)
        self._lines, self._theirs = self._changes.lines, self._changes.theirs

    def run(self) -> str:
        body, theirs = statements(self._given.body), statements(self._tree.body)
        if self._changes_loose_code(body, theirs):
            self._merge_all(body, theirs)
            return self._changes.made()
        theirs = self._with_methods_at_home(theirs)
        for by_text in (False, True):  # differences in comments count if there are no others
            self._merge(body, theirs, 0, by_text)
            if self._changes:
                break
        self._remove_named(body)
        if not self._changes and self._has_all_lines_and_more(body, theirs):
            return _with_ends_of(self._original, self._answer)
        self._add_imports(body)
        return self._changes.made()

    def _has_all_lines_and_more(self, body: list[Statement], theirs: list[Statement]) -> bool:
        """Whether an answer with the same code is the file with more comments."""
        comments = [line for line in self._lines if "#" in line]
        has_all = [ast.dump(each.node) for each in body] == [ast.dump(each.node) for each in theirs]
        return has_all and not has_new_lines(comments, self._theirs) and has_new_lines(self._theirs, self._lines)

    def _merge_all(self, body: list[Statement], theirs: list[Statement]) -> None:
        """Note the differences of all statements in their order; a definition is the same by its name.

        Raises:
            NoEdit: the answer has too little of the file, or leaves out a statement that it does not replace.
        """
        old = [line.strip() for line in self._lines if line.strip()]
        new = {line.strip() for line in self._theirs}
        if any(ast.unparse(each.node) == "..." for each in theirs):
            raise NoEdit("the answer leaves out code ('...')")
        if len(old) >= _SHORT and 2 * sum(line in new for line in old) < len(old):
            raise NoEdit("the answer has less than half of the file, and changes code outside of functions")
        mine, others = (
            [each.key if each.is_definition else ast.dump(each.node) for each in units] for units in (body, theirs)
        )
        for _, first, last, begin, end in SequenceMatcher(None, mine, others, autojunk=False).get_opcodes():
            if mine[first:last] == others[begin:end]:
                for one, other in zip(body[first:last], theirs[begin:end], strict=True):
                    if one.is_definition:
                        self._replace(one, other, by_text=False)
                continue
            gone = left_out(body[first:last], theirs[begin:end], self._tree)
            if gone and not asks_to_remove("", self._instruction):
                raise NoEdit(f"the answer leaves out {ast.unparse(gone[0].node).splitlines()[0]!r}")
            if any(each.is_shared for each in (*body[first:last], *theirs[begin:end])):
                raise NoEdit("statements that share a line are to change")
            if first < last:
                start, stop = body[first].start, body[last - 1].end
            else:
                start = stop = body[first - 1].end if first else body[0].start
            if begin == end or first < last or not begin:
                text_from = theirs[begin].start if begin < end else 0
            else:
                text_from = theirs[begin - 1].end
            self._changes.put(start, stop, self._theirs[text_from : theirs[end - 1].end] if begin < end else [])

    def _with_methods_at_home(self, theirs: list[Statement]) -> list[Statement]:
        """The answer's units without bare methods: those become changes of the class that has them."""
        classes = [node for node in self._given.body if isinstance(node, ast.ClassDef)]
        tops = {node.name for node in self._given.body if isinstance(node, DEFINITIONS)}
        kept = []
        for unit in theirs:
            node = unit.node
            homes = [each for each in classes if unit.key in {member.key for member in statements(each.body)}]
            namesakes = [member.node for each in homes for member in statements(each.body) if member.key == unit.key]
            is_method = isinstance(node, FUNCTIONS) and (
                looks_like_method(node) or any(parameters_of(each) == parameters_of(node) for each in namesakes)
            )
            if not isinstance(node, FUNCTIONS) or node.name in tops or not is_method:
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
                self._merge(statements(home.body), [unit], 1, by_text=False)
        return kept

    def _changes_loose_code(self, body: list[Statement], theirs: list[Statement]) -> bool:
        """Whether the answer has another version of a statement that defines nothing; what is new is an example."""
        old, new = ({ast.unparse(each.node) for each in units if is_loose(each)} for units in (body, theirs))
        if not any(unit.is_definition for unit in body):
            names = {each.key for each in theirs} - {each.key for each in body}
            return bool(new - old or (new and names)) or (bool(old - new) and asks_to_remove("", self._instruction))
        return any(get_close_matches(one, new - old, 1, _SIMILAR) for one in old - new)

    def _misses(self, body: list[Statement], theirs: list[Statement]) -> set[str]:
        return {unit.key for unit in body if unit.is_definition} - {unit.key for unit in theirs}

    def _merge(self, body: list[Statement], theirs: list[Statement], depth: int, by_text: bool) -> None:
        """Compare the statements of a module or class with the answer's, and note the changes.

        Args:
            depth: 1 in a class.
        """
        theirs = [self._as_accessor(as_renamed(unit, body, theirs, self._instruction), body) for unit in theirs]
        mine: dict[str, list[Statement]] = {}
        for unit in body:
            mine.setdefault(unit.key, []).append(unit)
        others: dict[str, list[Statement]] = {}
        for unit in theirs:
            others.setdefault(unit.key, []).append(unit)
        anchor: Statement | None = None
        for place, unit in enumerate(theirs):
            same, found = others[unit.key], mine.get(unit.key, [])
            if not unit.key or (len(found) <= 1 and unit is not same[-1]):
                continue  # of a function that is written twice, the last counts
            if found:
                if len(found) > 1 and len(found) != len(same):
                    raise NoEdit(f"the file defines {unit.key.strip('=')} more than once")
                anchor = found[same.index(unit) if len(found) > 1 else 0]
                if unit.key != MAIN or self._is_about_main(body, theirs):
                    self._replace(anchor, unit, by_text)
            elif not by_text and (depth or self._is_needed(unit, theirs)):
                following = next((mine[each.key][0] for each in theirs[place:] if each.key and each.key in mine), None)
                self._add(unit, body, anchor, following, depth)

    def _is_about_main(self, body: list[Statement], theirs: list[Statement]) -> bool:
        """Whether the main guard of an answer is more than an example: by its words, or in a whole file."""
        about_others = any(is_named(each.key, self._instruction) for each in body if each.is_definition)
        is_whole = bool(body) and not self._misses(body, theirs) and not about_others
        return is_whole or re.search(_MAIN_GUARD, self._instruction) is not None

    def _as_accessor(self, unit: Statement, body: list[Statement]) -> Statement:
        """A function without decorators for a property that has a setter: the one with the same parameters.

        Raises:
            NoEdit: none has them, or several.
        """
        found = [each for each in body if each.key.startswith(f"{unit.key}@") or each.key == unit.key]
        if not isinstance(unit.node, FUNCTIONS) or unit.node.decorator_list or len(found) < 2:
            return unit
        if any("(" in each.key or " " in each.key or "overload" in each.key for each in found):
            return unit  # overloads: the one without decorators has the code
        count = len(parameters_of(unit.node))
        alike = {each.key for each in found if len(parameters_of(each.node)) == count}
        if len(alike) != 1:
            raise NoEdit(f"the file has several functions {unit.key}, and the answer does not show which it changes")
        return replace(unit, key=alike.pop())

    def _is_needed(self, unit: Statement, theirs: list[Statement]) -> bool:
        """Whether a new statement of a module is more than an example: assignments, if a definition uses the name."""
        if unit.key == MAIN:
            return self._is_about_main([], [])
        used = set().union(*(free_names(each.node) for each in theirs if each.is_definition))
        names = re.findall(r"\w+", unit.key)
        if unit.is_definition and re.match(r"test_|Test[A-Z]", unit.key) and unit.key not in used:
            return re.search(r"\btest", self._instruction, re.IGNORECASE) is not None
        return unit.is_definition or any(name in used or is_named(name, self._instruction) for name in names)

    def _replace(self, old: Statement, new: Statement, by_text: bool) -> None:
        if is_stub(new.node) and not is_stub(old.node):
            return
        start, begin = old.start, new.start
        if self._loses_decorators(old.node, new.node):
            start, begin = old.node.lineno - 1, new.node.lineno - 1
        is_class = isinstance(old.node, ast.ClassDef) and isinstance(new.node, ast.ClassDef)
        if is_class and has_open_body(old.node) and has_open_body(new.node):
            self._replace_class(old, new, start, begin, by_text)
            return
        if not isinstance(new.node, type(old.node)) and old.is_definition:
            if not (isinstance(old.node, FUNCTIONS) and isinstance(new.node, FUNCTIONS)):
                raise NoEdit(f"the answer makes {old.key} something else than it is")
            if not re.search(_ASYNC, self._instruction, re.IGNORECASE):
                raise NoEdit(
                    f"the answer changes whether {old.key} is async, and the instruction does not ask for that"
                )
        is_same = ast.dump(old.node) == ast.dump(new.node if start == old.start else decorated_as(old.node, new.node))
        text = self._changes.taken(new, begin, self._changes.indent_at(old.node.lineno - 1))
        if is_same and not (by_text and self._differs(old, text, self._lines[start : old.end])):
            return
        if old.is_shared:
            raise NoEdit(f"{old.key.strip('=')} shares its line with another statement")
        comment = trailing_comment(self._lines[old.end - 1], old.node.end_col_offset or 0)
        if comment and "#" not in text[-1] and old.key.startswith("="):
            text[-1] += f"  {comment}"
        self._changes.put(start, old.end, text)

    def _differs(self, unit: Statement, new: list[str], old: list[str]) -> bool:
        """Whether the comments of a unit do, as far as that is wanted: new ones, or that some are removed there."""
        if has_new_lines(new, old):
            return True
        is_asked = is_named(unit.key.partition("@")[0].strip("="), self._instruction)
        is_asked = is_asked and asks_to_remove("comment|docstring", self._instruction)
        return is_asked and [line.strip() for line in new] != [line.strip() for line in old]

    def _replace_class(self, old: Statement, new: Statement, start: int, begin: int, by_text: bool) -> None:
        """Note the changes of the members of a class, and of its header."""
        assert isinstance(old.node, ast.ClassDef)
        assert isinstance(new.node, ast.ClassDef)
        theirs = new.node if start == old.start else decorated_as(old.node, new.node)
        if header_of(new.node) != "[] [] []" and header_of(theirs) != header_of(old.node):
            header = replace(new, end=end_of_header(self._theirs, new.node))
            text = self._changes.taken(header, begin, self._changes.indent_at(old.node.lineno - 1))
            self._changes.put(start, end_of_header(self._lines, old.node), text)
        elif new.node.name != old.node.name:
            line = old.node.lineno - 1
            self._changes.put(line, line + 1, [named_as(self._lines[line].rstrip("\r\n"), old.node, new.node.name)])
        self._merge(statements(old.node.body), statements(new.node.body), 1, by_text)

    def _loses_decorators(self, old: ast.stmt, new: ast.stmt) -> bool:
        """Whether an answer has only some or none of the decorators, without being asked to.

        Raises:
            NoEdit: it has fewer, and among them others.
        """
        had, has = ([ast.unparse(each) for each in getattr(node, "decorator_list", [])] for node in (old, new))
        names = {each for line in had for each in re.findall(r"\w+", line)}
        if len(has) >= len(had) or asks_to_remove("|".join([r"decorator", *map(re.escape, names)]), self._instruction):
            return False
        if not set(has) <= set(had):
            raise NoEdit(f"the answer leaves out the decorator @{next(each for each in had if each not in has)}")
        return True

    def _add(
        self, unit: Statement, body: list[Statement], anchor: Statement | None, following: Statement | None, depth: int
    ) -> None:
        """Note a new definition or assignment: behind ``anchor``, else before ``following``, else behind the last."""
        name = unit.key.partition("@")[0].strip("=")
        if unit.is_definition and name in nested_in(body, depth):
            raise NoEdit(f"{name} is defined within another statement of the file, where it cannot be replaced")
        taken = set(re.findall(r"\w+", name)) & set(bound([each.node for each in body]))
        if taken and "register" not in unit.key and unit.key != MAIN:
            raise NoEdit(f"the file binds {min(taken)} in another way")
        wide = 1 if depth else 2
        blank = wide if unit.is_definition else 0
        start = unit.start
        while start and self._theirs[start - 1].lstrip().startswith("#") and unit.is_definition:
            start -= 1
        text = self._changes.taken(unit, start, self._changes.indent_at(body[0].node.lineno - 1))
        definitions = [each for each in body if each.is_definition]
        if anchor is None and not unit.is_definition:
            line = (
                (body[0].end if body[0].key == '"""' else body[0].start) if depth else end_of_imports(self._lines, body)
            )
            self._changes.put(line, line, text if line else [*text, ""])
        elif anchor is None and following is not None and (following.is_definition or depth):
            line = start_of_comments(self._lines, following.start)
            self._changes.put(line, line, [*text, *[""] * wide])
        else:
            last = anchor or (definitions[-1] if definitions and unit.key != MAIN else body[-1])
            line = last.end
            before = [""] * max(blank, wide if last.is_definition else 0)
            is_tight = line < len(self._lines) and bool(self._lines[line].strip()) and unit.is_definition
            self._changes.put(line, line, [*before, *text, *[""] * (wide if is_tight else 0)])

    def _add_imports(self, body: list[Statement]) -> None:
        """Note the imports of the answer that its new code uses and the file lacks."""
        wanted = missing_imports(self._given, self._tree, "\n".join(self._changes.new), self._module)
        if wanted:
            line = end_of_imports(self._lines, body)
            is_after_import = (
                bool(line) and not self._lines[line - 1].lstrip().startswith("#") and self._lines[line - 1].strip()
            )
            is_docstring = body[0].key == '"""' and line == body[0].end
            before = [""] if is_docstring else []
            after = [] if is_after_import else ["", ""]
            self._changes.put_first(line, [*before, *wanted, *after])

    def _remove_named(self, body: list[Statement]) -> None:
        """Note the removal of definitions that the instruction removes by name and the answer does not have.

        Raises:
            NoEdit: several have the name.
        """
        theirs = set(defined_in(self._answer)) | {name.rpartition(".")[2] for name in defined_in(self._answer)}
        units = [("", unit) for unit in body]
        for unit in body:
            if isinstance(unit.node, ast.ClassDef) and not is_removed(unit.key, self._instruction):
                units += [(f"{unit.key}.", each) for each in statements(unit.node.body)]
        gone = [
            (f"{prefix}{unit.key.partition('@')[0]}", unit)
            for prefix, unit in units
            if (unit.is_definition or unit.key.startswith("="))
            and is_removed(f"{prefix}{unit.key.partition('@')[0].strip('=')}", self._instruction)
        ]
        names = {name for name, _ in gone}
        for name, unit in gone:
            is_there = name in theirs or unit.key in theirs or f"{unit.key.strip('=')} =" in self._answer
            if is_there or (
                new_name(name.replace("=", ""), self._instruction) and self._changes.replace(unit.start, unit.end)
            ):
                continue
            if sum(each.rpartition(".")[2] == name.rpartition(".")[2] for each in names) > 1:
                raise NoEdit(f"the file has several definitions of {name.rpartition('.')[2]}")
            if unit.is_shared:
                raise NoEdit(f"{name.strip('=')} shares its line with another statement")
            self._changes.remove(start_of_comments(self._lines, unit.start), unit.end)
