"""Tools: which a request offers, how a model writes a call of one, and the calls in an answer.

A model's notation is found by its chat template, which writes a call of a made-up function.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.prompts.chat import ChatTemplate
from securecoderl_edge.serving.faults import Fault, invalid
from securecoderl_edge.serving.fields import boolean, read_body, unsupported
from securecoderl_edge.serving.json_grammar import NOTES, grammar_of, literal
from securecoderl_edge.text import replace_surrogates

MOST_TOOLS, MOST_CALLS = 32, 8
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# Of a stripped text: with two runs of spaces next to each other it would take the square of their length.
_ALONE = re.compile(r"(?:```(?:json)?\s*)?(?P<object>\{.*\})(?:\s*```)?", re.DOTALL)
# The beginnings of such texts.
_MAYBE_ALONE = re.compile(r"`{0,2}|(?:```(?:j|js|jso|json)?\s*)?(?:\{.*)?", re.DOTALL)
_PROBE, _VALUE = "probe_function", "probe_value"
# Keys of a schema that can say that there are no parameters.
_OF_NONE = {"type", "properties", "required", *NOTES}


@dataclass(frozen=True)
class Notation:
    """How a model writes a call: ``before``, a JSON object with two keys, ``after``."""

    before: str
    name_key: str
    arguments_key: str
    after: str


@dataclass(frozen=True)
class Tools:
    """The tools of a request.

    Attributes:
        offered: their descriptions, for the template.
        schemas: of their arguments, by name.
        is_forced: the answer must be a call. is_single: one call at most.
    """

    notation: Notation
    offered: tuple[Mapping[str, Any], ...]
    schemas: Mapping[str, Any]
    is_forced: bool
    is_single: bool

    @property
    def begin(self) -> str:
        """The sign of a call where other text may come before; empty if it has none."""
        return "" if self.is_forced else self.notation.before.strip()

    @property
    def within(self) -> str:
        """The text by which an answer that is nothing but the object of a call is known; empty if a call is forced."""
        return "" if self.is_forced else json.dumps(self.notation.arguments_key)

    def grammar(self) -> str:
        """The grammar of calls, from the start if they are forced, else from `begin`; and ``whole``, see `within`."""
        before, after = literal(self.notation.before), literal(self.notation.after)
        opened = [
            f"{literal(self._head(name))} json-{number} {literal('}')} {after}"
            for number, name in enumerate(self.schemas)
        ]
        body = f"({' | '.join(opened)})"
        more = "" if self.is_single or not self.notation.before else f' ("\\n" {before} {body}){{0,{MOST_CALLS - 1}}}'
        if not self.is_forced:  # models may leave out the line end behind the sign
            behind = self.notation.before.rpartition(self.begin)[2] if self.begin else ""
            before = f"{literal(behind)}?" if behind else ""
        root = f"{before} {body}{more}"
        return grammar_of(root, list(self.schemas.values()), is_strict=False, more=[self._whole()])

    def read(self, text: str) -> tuple[str, list[dict[str, str]]]:
        """The words before the first call in an answer, and the calls; a call that is cut or malformed is none.

        An answer that is nothing but the object of a call is one, too: small models forget what stands around it.
        """
        calls: list[dict[str, str]] = []
        before = self.notation.before.strip()
        if not before or before not in text:
            alone = _ALONE.fullmatch(text.strip())
            found = self._call_at(alone["object"], 0) if alone else None
            if alone and found and found[1] == len(alone["object"]):
                return "", [found[0]]
        if before not in text:
            return text, []
        start = text.find(before) if before else len(text) - len(text.lstrip())
        place = start
        while 0 <= place < len(text) and len(calls) < (1 if self.is_single else MOST_CALLS):
            found = self._call_at(text, place + len(before))
            if found is None:
                break
            calls.append(found[0])
            place = text.find(before, found[1]) if before else -1
        # What a client counts in the words has been streamed with the spaces before them.
        return (text[:start].rstrip() if calls else text), calls

    def may_be_call(self, text: str) -> bool:
        """Whether an answer that begins so may be nothing but a call."""
        return _MAYBE_ALONE.fullmatch(text.lstrip()) is not None

    def _head(self, name: str) -> str:
        notation = self.notation
        return f'{{"{notation.name_key}": {json.dumps(name)}, "{notation.arguments_key}": '

    def _whole(self) -> str:
        """The rule of an answer that is nothing but the object of a call; see `read`."""
        name_key, arguments_key, *names = (
            literal(json.dumps(each)) for each in (self.notation.name_key, self.notation.arguments_key, *self.schemas)
        )
        called = (f'{name} ws "," ws {arguments_key} ws ":" ws json-{number}' for number, name in enumerate(names))
        record = f'"{{" ws {name_key} ws ":" ws ({" | ".join(called)}) "}}" ws'
        return f'whole ::= ws ("```" "json"? ws)? {record} ("```" ws)?'

    def _call_at(self, text: str, place: int) -> tuple[dict[str, str], int] | None:
        begin = place + len(text[place:]) - len(text[place:].lstrip())
        try:
            record, end = json.JSONDecoder().raw_decode(text, begin)
            name = record.get(self.notation.name_key) if isinstance(record, dict) else None
            if not isinstance(name, str) or name not in self.schemas:
                return None
            arguments = record.get(self.notation.arguments_key, {})
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
            arguments = replace_surrogates(arguments) or "{}"
            read_body(arguments.encode())  # as when the client sends the call back
        except (ValueError, RecursionError, Fault):  # no JSON, numbers that are none, or no object
            return None
        return {"name": name, "arguments": arguments}, end


def find_notation(chat: ChatTemplate | None) -> Notation | None:
    """How a model with this template writes calls; None if the template knows no tools."""
    if chat is None:
        return None
    tool = {"type": "function", "function": {"name": _PROBE, "description": "", "parameters": {"type": "object"}}}
    call = {"type": "function", "function": {"name": _PROBE, "arguments": {"key": _VALUE}}}
    question = {"role": "user", "content": "question"}
    try:
        prompt = chat.converse([question], [tool])
        answer = {"role": "assistant", "content": "", "tool_calls": [call]}
        whole = chat.render([question, answer], [tool], add_generation_prompt=False)
    except SceError:
        return None
    if _PROBE not in prompt or not whole.startswith(prompt):
        return None
    return _notation_in(whole[len(prompt) :], chat.tokens.get("eos_token", ""))


def _notation_in(written: str, end: str) -> Notation | None:
    for found in re.finditer(r"\{", written):
        try:
            record, close = json.JSONDecoder().raw_decode(written, found.start())
        except ValueError:
            continue
        keys = {_PROBE: "", _VALUE: ""}
        for key, value in record.items():
            if value == _PROBE:
                keys[_PROBE] = key
            elif value == {"key": _VALUE}:
                keys[_VALUE] = key
        if all(keys.values()):
            after = written[close:].partition(end)[0] if end else ""
            return Notation(written[: found.start()], keys[_PROBE], keys[_VALUE], after)
    return None


def read_tools(body: Mapping[str, Any], notation: Notation | None) -> Tools | None:
    """The tools of a body; None without any, or if none is to be called.

    Raises:
        Fault: they are malformed, or the model knows no tools.
    """
    offered, choice = body.get("tools", []), body.get("tool_choice", "auto")
    is_parallel = boolean(body, "parallel_tool_calls", default=True)
    if offered == [] and choice in ("auto", "none"):
        return None
    if not isinstance(offered, list) or not 1 <= len(offered) <= MOST_TOOLS:
        raise invalid("tools", f"must be a list of 1 to {MOST_TOOLS} functions")
    schemas: dict[str, Any] = {}
    for index, tool in enumerate(offered):
        name, schema = _function(tool, f"tools[{index}]")
        if name in schemas:
            raise invalid(f"tools[{index}]", "has the name of another one")
        schemas[name] = schema
    if choice == "none":
        return None
    if notation is None:
        raise unsupported("tools", "need a model in GGUF whose chat template knows them")
    if isinstance(choice, dict):
        named = choice.get("function")
        wanted = named.get("name") if isinstance(named, dict) else None
        if not isinstance(wanted, str) or wanted not in schemas:
            raise invalid("tool_choice", "names a function that is not one of the tools")
        schemas = {wanted: schemas[wanted]}
    elif choice not in ("auto", "required"):
        raise invalid("tool_choice", 'must be "none", "auto", "required" or a function')
    return Tools(notation, tuple(offered), schemas, choice != "auto", not is_parallel or isinstance(choice, dict))


def _function(tool: Any, where: str) -> tuple[str, Any]:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type", "function") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str) or not _NAME.fullmatch(name):
        raise invalid(where, 'needs the type "function" and a function with a name of letters, digits and _.-')
    schema = {} if function.get("parameters") is None else function["parameters"]
    if not isinstance(schema, Mapping):
        raise invalid(where, "has parameters that are not a schema")
    # Where nothing is said of parameters there are none, as for OpenAI; small models would make some up.
    has_none = not (schema.get("properties") or schema.get("required")) and schema.keys() <= _OF_NONE
    return name, {"type": "object", **schema, **({"additionalProperties": False} if has_none else {})}
