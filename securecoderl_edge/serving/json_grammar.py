"""JSON Schema as a grammar of llama.cpp, in bounded time and memory: a schema comes from a client.

Each node of a schema becomes a rule. Two alternatives of the same kind, such as two objects, double what llama.cpp has
to follow at each token, so their number along a path is limited, and none may be within a schema that contains itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any
from urllib.parse import unquote

from securecoderl_edge.serving.json_rules import ALL_NAMES, FORMATS, RULES, SAFE_BOUNDS

MOST_NODES, DEEPEST, LONGEST = 500, 24, 1 << 16
_MOST_PROPERTIES, _MOST_VALUES, _MOST_REPEATED, _MOST_ALIKE, _LONGEST_POINTER = 64, 500, 1000, 16, 1000
_KINDS = ("object", "array", "string", "number", "integer", "boolean", "null")
# Keys that do not say what is valid.
NOTES = ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$id",
          "$comment", "$defs", "definitions", "strict", "discriminator")  # fmt: skip
_OTHER_NODES = ("$ref", "anyOf", "oneOf", "allOf")
_FOLLOWED = ("properties", "required", "additionalProperties", "items", "minItems", "maxItems", "enum", "const",
             "minLength", "maxLength", "format", *_OTHER_NODES)  # fmt: skip
_KNOWN = ("type", *_FOLLOWED, *NOTES)


class SchemaError(ValueError):
    """A schema that cannot be followed; the message says where and why."""


def literal(text: str) -> str:
    """A text as a literal of a grammar."""
    return '"' + "".join(_escaped(character) for character in text) + '"'


def json_grammar(schema: Any, is_strict: bool = True) -> str:
    """The grammar of the JSON texts that a schema allows; its first rule is ``root``.

    Args:
        schema: an object, or true for any value.
        is_strict: else what cannot be followed allows more texts than the schema.

    Raises:
        SchemaError: it is malformed, too large, or uses something that a grammar cannot express.
    """
    return grammar_of("ws json-0", [schema], is_strict)


def grammar_of(root: str, schemas: Sequence[Any], is_strict: bool = True, more: Sequence[str] = ()) -> str:
    """A grammar whose rule ``root``, and ``more`` rules, may use ``json-0`` ... for the texts that each schema allows.

    Raises:
        SchemaError: see `json_grammar`.
    """
    plain = [f"json-{number} ::= object" for number in range(len(schemas))]
    left = LONGEST - len("\n".join((f"root ::= {root}", *more, *plain, *RULES, "")))
    rules = []
    for number, schema in enumerate(schemas):
        own = plain[number]
        try:
            found = "\n".join(_Converter(schema, f"json-{number}", is_strict).rules())
            if len(found) - len(own) > left:
                raise SchemaError("too large")
            own, left = found, left - (len(found) - len(own))
        except SchemaError:
            if is_strict:
                raise
        rules.append(own)
    return "\n".join((f"root ::= {root}", *more, *rules, *RULES)) + "\n"


class _Converter:
    """Rules for one schema; ``name`` is that of the first, and begins all others."""

    def __init__(self, schema: Any, name: str, is_strict: bool) -> None:
        self._schema, self._name, self._is_strict = schema, name, is_strict
        self._rules: list[str] = []
        self._nodes = self._repeated = self._values = self._size = self._overlaps = 0
        self._references = {"#": (name, "any", 1)}  # rule, kind and alternatives by pointer
        self._open = {"#": 0}  # pointers being followed, with `_overlaps` when they began
        self._kinds = dict[str, str]()  # by pointer, see `_kind`: many nodes can lead to the same long chain of them

    def rules(self) -> list[str]:
        rule, _, alike = self._rule(self._schema, "", 0)
        if alike > _MOST_ALIKE:
            raise SchemaError(f"more than {_MOST_ALIKE} alternatives of one type at a place")
        return [f"{self._name} ::= {rule}", *self._rules]

    def _add(self, body: str) -> str:
        name = f"{self._name}-{len(self._rules)}"
        self._size += len(body)
        if self._size > LONGEST:  # a long text may be in many rules
            raise SchemaError("too large")
        self._rules.append(f"{name} ::= {body}")
        return name

    def _rule(self, schema: Any, where: str, depth: int) -> tuple[str, str, int]:
        """The name of a rule for a node, the kind of its values, and how many alternatives are open at a time."""
        self._nodes += 1
        if self._nodes > MOST_NODES or depth > DEEPEST:
            raise SchemaError(f"more than {MOST_NODES} nodes, or nested deeper than {DEEPEST}")
        if schema is True or schema == {}:
            return "value", "any", 1
        if not isinstance(schema, dict):
            raise SchemaError(f"{where or '#'}: expected an object")
        if self._is_strict:
            _check_keywords(schema, where)
        else:
            schema = _loosened(schema)
        if "$ref" in schema:
            return self._reference(schema["$ref"], where, depth)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self._union(schema[key], f"{where}/{key}", depth)
        if "allOf" in schema:
            only = schema["allOf"]
            if not isinstance(only, list) or len(only) != 1:
                raise SchemaError(f"{where}/allOf: expected one schema")
            return self._rule(only[0], f"{where}/allOf", depth + 1)
        if "const" in schema:
            return self._literals([schema["const"]], schema, where)
        if "enum" in schema:
            return self._literals(schema["enum"], schema, where)
        kind = schema.get("type", _implied(schema))
        if kind is None:
            return "value", "any", 1
        kinds = _kinds_in(kind, where)
        if isinstance(kind, list):
            return self._union([{**schema, "type": each} for each in kinds], where, depth)
        if kind == "object":
            return self._object(schema, where, depth)
        if kind == "array":
            return self._array(schema, where, depth)
        if kind == "string":
            return self._string(schema, where), kind, 1
        return kind, "number" if kind == "integer" else kind, 1

    def _reference(self, pointer: Any, where: str, depth: int) -> tuple[str, str, int]:
        target = self._target(pointer, where)
        if pointer in self._open:
            if self._overlaps > self._open[pointer]:
                raise SchemaError(f"{where}: alternatives of one type within a schema that contains itself")
            return self._references[pointer]
        if pointer not in self._references:
            name = f"{self._name}-ref-{len(self._references)}"
            self._references[pointer] = (name, "any", 1)
            self._open[pointer] = self._overlaps
            rule, kind, alike = self._rule(target, where, depth + 1)
            del self._open[pointer]
            self._rules.append(f"{name} ::= {rule}")
            self._references[pointer] = (name, kind, alike)
        return self._references[pointer]

    def _target(self, pointer: Any, where: str) -> Any:
        if not isinstance(pointer, str) or not (pointer == "#" or pointer.startswith("#/")):
            raise SchemaError(f"{where}/$ref: expected a reference within the schema")
        if len(pointer) > _LONGEST_POINTER:
            raise SchemaError(f"{where}/$ref: more than {_LONGEST_POINTER} characters")
        for text in (pointer, unquote(pointer)):
            steps = (step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:])
            if (found := reduce(_member, steps, self._schema)) is not None:
                return found
        raise SchemaError(f"{where}/$ref: {pointer[:100]} is missing")

    def _union(self, schemas: Any, where: str, depth: int) -> tuple[str, str, int]:
        if not isinstance(schemas, list) or not 0 < len(schemas) <= MOST_NODES:
            raise SchemaError(f"{where}: expected a list of 1 to {MOST_NODES} schemas")
        before = self._overlaps
        kinds = [self._kind(schema, where) for schema in schemas]
        if len(set(kinds)) < len(kinds) or ("any" in kinds and len(kinds) > 1):
            self._overlaps += 1
        found = [self._rule(schema, f"{where}/{number}", depth + 1) for number, schema in enumerate(schemas)]
        self._overlaps = before
        alike: dict[str, int] = {}
        for _, kind, count in found:
            alike[kind] = alike.get(kind, 0) + count
        most = max(alike.values()) + (alike.get("any", 0) if len(alike) > 1 else 0)
        if most > _MOST_ALIKE:
            raise SchemaError(f"{where}: more than {_MOST_ALIKE} alternatives of one type at a place")
        kind = found[0][1] if len(alike) == 1 else "any"
        return self._add(" | ".join(dict.fromkeys(rule for rule, _, _ in found))), kind, most

    def _kind(self, schema: Any, where: str, depth: int = 0) -> str:
        """The kind of a node as far as it says so itself, or where it refers to."""
        if not isinstance(schema, dict) or depth > DEEPEST:
            return "any"
        schema = schema if self._is_strict else _loosened(schema)
        if "$ref" in schema:
            pointer = str(schema["$ref"])
            if pointer not in self._kinds:
                self._kinds[pointer] = "any"  # of one that leads to itself
                self._kinds[pointer] = self._kind(self._target(pointer, where), where, depth + 1)
            return self._kinds[pointer]
        if any(key in schema for key in ("anyOf", "oneOf", "allOf")):
            return "any"
        kind = schema.get("type", _implied(schema) or "any")
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list) and 0 < len(values) <= _MOST_VALUES and _are_texts(values):
            return "string"
        return ("number" if kind == "integer" else kind) if isinstance(kind, str) else "any"

    def _literals(self, values: Any, schema: Mapping[str, Any], where: str) -> tuple[str, str, int]:
        """The values that have a type of the schema."""
        if not isinstance(values, list):
            raise SchemaError(f"{where}: expected a list of values")
        self._values += len(values)
        if self._values > _MOST_VALUES:
            raise SchemaError(f"{where}: more than {_MOST_VALUES} values")
        if "type" in schema:
            kinds = _kinds_in(schema["type"], where)
            values = [value for value in values if _has_type(value, kinds)]
        if not values:
            raise SchemaError(f"{where}: expected a value of the type")
        try:
            texts = sorted({json.dumps(value, ensure_ascii=False, allow_nan=False) for value in values})
        except (ValueError, RecursionError) as error:  # infinite, or nested too deeply
            raise SchemaError(f"{where}: a value is not JSON ({str(error)[:80]})") from None
        kind = "string" if all(isinstance(value, str) for value in values) else "any"
        return self._add(f"({self._tree(texts, 0)}) ws"), kind, 1

    def _tree(self, texts: Sequence[str], depth: int) -> str:
        """Alternatives in which common beginnings occur once, so that few are open at a time."""
        if len(texts) == 1:
            return literal(texts[0])
        common = _common(texts)
        head, rests = texts[0][:common], [text[common:] for text in texts]
        groups: dict[str, list[str]] = {}
        for rest in rests:
            groups.setdefault(rest[:1], []).append(rest)
        if depth > DEEPEST:
            return " | ".join(map(literal, texts))
        parts = [self._add(self._tree(group, depth + 1)) for first, group in groups.items() if first]
        inner = " | ".join(parts)
        return f"{literal(head)} ({inner}){'?' if '' in groups else ''}"

    def _object(self, schema: Mapping[str, Any], where: str, depth: int) -> tuple[str, str, int]:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, dict) or not _are_texts(required):
            raise SchemaError(f"{where or '#'}: expected properties by name, and a list of required ones")
        names = dict.fromkeys([*properties, *required])
        if max(len(names), len(required)) > _MOST_PROPERTIES:
            raise SchemaError(f"{where or '#'}: more than {_MOST_PROPERTIES} properties")
        others = schema.get("additionalProperties", True)
        properties = {name: properties.get(name, others) for name in names}
        if not properties:
            return self._map(others, where, depth)
        pairs, most = [], 1
        for name, value in properties.items():
            rule, _, alike = self._rule(value, f"{where}/properties/{name[:50]}", depth + 1)
            most = max(most, alike)
            pairs.append(
                (self._add(f'{literal(json.dumps(name, ensure_ascii=False))} ws ":" ws {rule}'), name in required)
            )
        # From the last property to the first: what follows it if no property, or if some, stood before.
        first = then = ""
        for pair, is_required in reversed(pairs):
            after = f"{pair} {then}" if then else pair
            head, rest = self._add(after), self._add(f'"," ws {after}')
            if is_required:
                first, then = head, rest
            else:
                first = self._add(f"{head} | {first}" if first else f"{head}?")
                then = self._add(f"{rest} | {then}" if then else f"{rest}?")
        return self._add(f'"{{" ws {first} "}}" ws'), "object", most

    def _map(self, values: Any, where: str, depth: int) -> tuple[str, str, int]:
        """An object whose properties have any names."""
        if values is False:
            return self._add('"{" ws "}" ws'), "object", 1
        rule, _, alike = self._rule(values, f"{where}/additionalProperties", depth + 1)
        pair = self._add(f'string ":" ws {rule}')
        return self._add(f'"{{" ws ({pair} ("," ws {pair})*)? "}}" ws'), "object", alike

    def _array(self, schema: Mapping[str, Any], where: str, depth: int) -> tuple[str, str, int]:
        rule, _, alike = self._rule(schema.get("items", True), f"{where}/items", depth + 1)
        least, most = self._counts(schema, "minItems", "maxItems", where)
        if most == 0:
            return self._add('"[" ws "]" ws'), "array", 1
        more = f'("," ws {rule}){{{max(0, least - 1)},{"" if most is None else most - 1}}}'
        body = f"{rule} {more}"
        return self._add(f'"[" ws {body if least else f"({body})?"} "]" ws'), "array", alike

    def _string(self, schema: Mapping[str, Any], where: str) -> str:
        if "format" in schema:
            rule = FORMATS.get(schema["format"]) if isinstance(schema["format"], str) else None
            if rule is not None and not {"minLength", "maxLength"} & set(schema):
                return self._add(f'"\\"" {rule} "\\"" ws')
            if self._is_strict:
                raise SchemaError(f"{where}/format: expected {', '.join(FORMATS)}, without a length")
        least, most = self._counts(schema, "minLength", "maxLength", where)
        if not least and most is None:
            return "string"
        return self._add(f'"\\"" char{{{least},{"" if most is None else most}}} "\\"" ws')

    def _counts(self, schema: Mapping[str, Any], low: str, high: str, where: str) -> tuple[int, int | None]:
        """The bounds of a repetition, null as if left out; all that a grammar writes out are counted together."""
        least, most = 0 if schema.get(low) is None else schema[low], schema.get(high)
        for name, count in ((low, least), (high, most)):
            if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
                raise SchemaError(f"{where}/{name}: expected a whole number of at least 0")
        if most is not None and most < least:
            raise SchemaError(f"{where}: {low} is above {high}")
        self._repeated += least if most is None else most
        if self._repeated > _MOST_REPEATED:
            raise SchemaError(
                f"{where}: {low} and {high} of the whole schema must be at most {_MOST_REPEATED} together"
            )
        return least, most


def _check_keywords(schema: Mapping[str, Any], where: str) -> None:
    """Refuse unknown keywords, and those next to one whose grammar is that of its value alone."""
    followed = ALL_NAMES | (SAFE_BOUNDS if schema.get("type") == "integer" else {})
    if unknown := [key for key, value in schema.items() if key not in _KNOWN and (key, value) not in followed.items()]:
        raise SchemaError(f"{where or '#'}: the keyword {unknown[0][:50]!r} is not supported")
    for key in (*_OTHER_NODES, "const", "enum"):
        allowed = (key, *NOTES, *(("type",) if key in ("const", "enum") else ()))
        if key in schema and (others := [other for other in schema if other not in allowed]):
            raise SchemaError(f"{where or '#'}: {others[0]!r} next to {key!r} is not supported")


def _loosened(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keywords that are followed, without other nodes that must hold next to them: it allows more texts."""
    kept = {key: schema[key] for key in ("type", *_FOLLOWED) if key in schema}
    for key in _OTHER_NODES:
        if kept.keys() - {key, "type"}:
            kept.pop(key, None)
    return kept


def _member(found: Any, key: str) -> Any:
    """What an object has under a name, or a list, such as one of alternatives, at a place; None without it."""
    if isinstance(found, list) and key.isascii() and key.isdecimal() and len(key) < 4:
        return found[int(key)] if int(key) < len(found) else None
    return found.get(key) if isinstance(found, dict) else None


def _kinds_in(kind: Any, where: str) -> list[str]:
    """The types that a node names; `SchemaError` if one is unknown."""
    kinds = kind if isinstance(kind, list) else [kind]
    if len(kinds) > len(_KINDS) or not all(each in _KINDS for each in kinds):
        raise SchemaError(f"{where}/type: unknown type, or more than {len(_KINDS)}")
    return kinds


def _has_type(value: Any, kinds: Sequence[str]) -> bool:
    if isinstance(value, bool) or value is None:
        return ("null" if value is None else "boolean") in kinds
    if isinstance(value, int | float):
        is_whole = isinstance(value, int) or value.is_integer()
        return "number" in kinds or ("integer" in kinds and is_whole)
    return ("string" if isinstance(value, str) else "array" if isinstance(value, list) else "object") in kinds


def _implied(schema: Mapping[str, Any]) -> str | None:
    """The type of a node without one, by its other keys."""
    signs = {
        "object": ("properties", "required", "additionalProperties"),
        "array": ("items", "minItems", "maxItems"),
        "string": ("minLength", "maxLength", "format"),
    }
    return next((kind for kind, keys in signs.items() if any(key in schema for key in keys)), None)


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02X}" if code < 256 else f"\\u{code:04X}" if code < 1 << 16 else f"\\U{code:08X}"


def _common(texts: Iterable[str]) -> int:
    """Length of the common beginning."""
    least, most = min(texts), max(texts)
    return next((place for place, (one, two) in enumerate(zip(least, most, strict=False)) if one != two), len(least))


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
