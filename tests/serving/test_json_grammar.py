"""Schemas as grammars: what they allow, through llama.cpp itself, and which are refused in bounded time."""

from __future__ import annotations

import itertools
import json
import math
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("llama_cpp", reason="needs the gguf extra")

from securecoderl_edge.errors import SceError
from securecoderl_edge.runtimes.gguf.llama import LlamaModel
from securecoderl_edge.serving.json_grammar import (
    _KINDS,
    _KNOWN,
    LONGEST,
    SchemaError,
    grammar_of,
    json_grammar,
    literal,
)
from securecoderl_edge.serving.tools import Notation, read_tools

Allows = Callable[[str, str], bool]


@pytest.fixture(scope="module")
def model(tiny_gguf: Path) -> Iterator[LlamaModel]:
    model = LlamaModel(tiny_gguf)
    yield model
    model.close()


@pytest.fixture(scope="module")
def allows(model: LlamaModel) -> Allows:
    """Whether a grammar allows a whole text."""

    def allowed(grammar: str, text: str) -> bool:
        found = model.open_grammar(grammar)
        for token in model.tokenize(text, is_plain=True):
            if not found.allows(token):
                return False
            found.accept(token)
        return found.allows(model.end_token())

    return allowed


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 3},
        "age": {"type": ["integer", "null"]},
        "tags": {"type": "array", "items": {"enum": ["ab", "abc", 'x"y', "é"]}, "maxItems": 2},
        "child": {"$ref": "#"},
    },
    "required": ["name"],
}


# As in OpenAI's documentation, and as pydantic writes it: an alternative is a reference to what it is part of.
LINKED = {
    "type": "object", "properties": {"list": {"$ref": "#/$defs/node"}}, "required": ["list"], "$defs": {"node": {
        "type": "object", "properties": {"value": {"type": "number"}, "next": {"anyOf": [{"$ref": "#/$defs/node"},
        {"type": "null"}]}}, "additionalProperties": False, "required": ["next", "value"]}},
}  # fmt: skip
SUM = {
    "$ref": "#/$defs/sum", "$defs": {"sum": {"anyOf": [{"type": "number"}, {"$ref": "#/$defs/both"}]}, "both": {
        "type": "object", "properties": {"left": {"$ref": "#/$defs/sum"}, "right": {"$ref": "#/$defs/sum"}},
        "required": ["left", "right"]}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (PERSON,
         ['{"name":"a"}', '{"name": "a", "age": 3}', '{"name":"a","age":null,"tags":[]}',
          '{"name":"a","child":{"name":"b","child":{"name":""}}}', '{"name":"a","tags":["ab","abc"]}',
          '{"name":"a","tags":["x\\"y","é"]}', '{"name":"abc","child":{"name":"b"}}', '{\n  "name": "a"\n}'],
         ["{}", '{"age":3}', '{"name":"abcd"}', '{"name":"a",}', '{"name":"a","tags":["a"]}', '{"name":"a"',
          '{"name":"a","tags":["ab","ab","ab"]}', '{"name":"a","x":1}', '{"name":"a","age":1.5}', '{"name":"a"}}',
          '{"name":"a","child":{}}', '[{"name":"a"}]']),
        ({"type": "object"}, ["{}", '{"a":[1,{"b":null}]}'], ["[]", "1", '{"a"}', "{a:1}"]),
        (True, ["{}", "[]", '"a"', "1", "null", "-1.5e3"], ["", "nul", "01", "+1", "[1,]"]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, ["{}", '{"a":1}'], ['{"a":"1"}']),
        ({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "null"}},
         ["{}", '{"a":null}'], ['{"a":1}', "{1:null}"]),
        ({"type": "object", "additionalProperties": False}, ["{}"], ['{"a":1}']),
        ({"type": "object", "required": ["b"]}, ['{"b":[]}'], ["{}", '{"a":1}']),
        ({"properties": {"a": {"type": "null"}}, "required": ["b"], "additionalProperties": {"type": "integer"}},
         ['{"b":1}', '{"a":null,"b":1}'], ['{"b":"x"}', '{"b":null}', '{"a":null}']),
        ({"anyOf": [{"type": "string"}, {"type": "boolean"}]}, ['"a"', "true"], ["null", "1"]),
        ({"type": "string", "enum": [1, "a", None]}, ['"a"'], ["1", "null"]),
        ({"type": ["integer", "null"], "enum": [1, "a", None, True, 1.5]}, ["1", "null"], ['"a"', "true", "1.5"]),
        ({"const": {"a": [1]}}, ['{"a": [1]}'], ['{"a": [2]}']),
        ({"enum": [1, "1", None, "", "a", "ab"]}, ["1", '"1"', "null", '""', '"ab"'], ["2", '"b"', '"abc"']),
        ({"type": "array", "minItems": 2, "maxItems": 3}, ["[1,2]", "[1,2,3]"], ["[]", "[1]", "[1,2,3,4]"]),
        ({"type": "array", "maxItems": 0}, ["[]"], ["[1]"]), ({"type": "array", "minItems": 1}, ["[1]"], ["[]"]),
        ({"type": "string", "minLength": 2}, ['"ab"', '"a\\n"'], ['"a"', '"']),
        ({"type": "string", "maxLength": 1}, ['"\\ud83d\\ude00"', '"\\u00e9"', '"\\uD7FF"', '"\\uE000"'],
         ['"\\ud83d"', '"\\ude00"', '"\\ud83d\\ud83d"', '"\\ud83d\\u0041"', '"\\u004"', '"\\u00e9\\u00e9"']),
        ({"type": "number"}, ["1e99", "-2.5E-3", "9999999999999999"], ["1e400", "1e", ".5"]),
        ({"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991},
         ["0", "-12", "8999999999999999", "999999999999999"], ["9007199254740992", "9999999999999999", "01", "1.5"]),
        ({"type": "string", "format": "date"},
         ['"2026-11-29"', '"2026-12-31"', '"2026-02-28"', '"2028-02-29"', '"2000-02-29"'],
         ['"2026-13-29"', '"x"', '"2026-02-29"', '"1900-02-29"', '"2026-02-30"', '"2026-06-31"', '"2026-01-00"']),
        ({"type": "string", "format": "date-time"}, ['"2026-11-29T23:59:59Z"', '"2026-11-29T00:00:00.125+23:59"'],
         ['"2026-02-30T00:00:00Z"', '"2026-11-29T24:00:00Z"', '"2026-11-29T00:00:00+99:99"', '"2026-11-29"']),
        ({"type": "string", "format": "uuid"}, ['"' + "0" * 8 + "-0000-0000-0000-" + "a" * 12 + '"'], ['"0"']),
        ({"allOf": [{"$ref": "#/$defs/a~1b"}], "$defs": {"a/b": {"type": "null"}}}, ["null"], ["1"]),
        ({"$ref": "#/$defs/a%3Cb%25", "$defs": {"a<b%": {"type": "null"}}}, ["null"], ["1"]),
        ({"$ref": "#/$defs/a%3Cb", "$defs": {"a%3Cb": {"type": "null"}}}, ["null"], ["1"]),
        ({"$ref": "#/$defs/List%3Cé%3E", "$defs": {"List<é>": {"type": "null"}}}, ["null"], ["1"]),
        (LINKED, ['{"list":{"value":1,"next":null}}', '{"list":{"value":1,"next":{"value":2,"next":null}}}'],
         ['{"list":null}', '{"list":{"value":1}}', '{"list":{"value":1,"next":{}}}']),
        (SUM, ["1", '{"left":1,"right":{"left":2,"right":-3}}'], ["null", '{"left":1}', '{"left":null,"right":1}']),
        ({"properties": {"a": {"anyOf": [{"type": "null"}, {"const": 7}]}, "b": {"$ref": "#/properties/a/anyOf/1"}}},
         ['{"b":7}', '{"a":null,"b":7}'], ['{"b":null}']),
        ({"properties": {"]::=\"root": {"const": "\\\"\n\x00"}}},
         ['{"]::=\\"root": "\\\\\\"\\n\\u0000"}'], ['{"]": 1}']),
    ],
    ids=lambda each: json.dumps(each)[:40] if isinstance(each, dict) else "",
)  # fmt: skip
def test_a_grammar_allows_what_the_schema_allows(
    allows: Allows, schema: Any, right: list[str], wrong: list[str]
) -> None:
    grammar = json_grammar(schema)
    assert [text for text in right if not allows(grammar, text)] == []
    assert [text for text in wrong if allows(grammar, text)] == []


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


ARRAY = {"type": "array", "items": {"$ref": "#"}}
DOUBLED: dict[str, Any] = {"type": "string"}
for _ in range(12):  # two to the power of 12 ways to read "[[[[[[[[[[[["
    DOUBLED = {"anyOf": [{"type": "array", "items": DOUBLED}, {"type": "array", "items": DOUBLED, "minItems": 1}]}


@pytest.mark.parametrize(
    "schema",
    [
        5, None, [], "string", {"type": "strange"}, {"type": 5}, {"type": {}}, {"properties": []}, {"required": "a"},
        {"properties": {}, "required": [1]}, {"enum": []}, {"enum": {}}, {"anyOf": []}, {"anyOf": {}},
        {"items": [1], "type": "array"},
        {"$ref": 5}, {"$ref": "#/missing"}, {"$ref": "https://example.com/x"}, {"$ref": "file:///etc/passwd"},
        {"$ref": "#/$defs/a/b", "$defs": {"a": []}}, {"anyOf": [True, {"$ref": "#/anyOf/2"}]}, {"type": ["null", "b"]},
        {"enum": [1], "type": ["string", 5]}, {"required": ["a"] * 65}, {"type": ["null"] * 8},
        {"type": "string", "pattern": "a*"}, {"minimum": 1}, {"type": "integer", "minimum": 0},
        {"propertyNames": {"type": "string", "maxLength": 3}},
        {"type": "number", "minimum": -9007199254740991}, {"type": "integer", "maximum": None},
        {"type": "string", "format": "email"}, {"type": "string", "maxLength": 10**9},
        {"type": "string", "minLength": -1},
        {"type": "string", "minLength": True}, {"type": "array", "minItems": 3, "maxItems": 2},
        {"type": "string", "minLength": 1.5},
        {"type": "array", "maxItems": 600, "items": {"type": "array", "maxItems": 600}}, nested(30),
        {"enum": list(range(501))}, {"properties": {str(number): True for number in range(65)}},
        {"anyOf": [{"type": "object"}] * 17}, {"anyOf": [ARRAY, {**ARRAY, "minItems": 1}]}, DOUBLED,
        {"anyOf": [{"$ref": "#"}, {"type": "string"}]}, {"anyOf": [{"$ref": 5}, {"type": "string"}]},
        {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}], "$defs": {"a": {"$ref": "#"}}},
        {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "array", "items": {"$ref": "#"}}], "$defs": {"a": ARRAY}},
        {"allOf": [True, True]}, {"not": {}},
        {"type": "object", "anyOf": [{"required": ["a"]}]}, {"$ref": "#/$defs/a", "$defs": {"a": True}, "minLength": 1},
        {"oneOf": [True], "anyOf": [True]}, {"enum": ["a"], "maxLength": 0}, {"type": "string", "const": 1},
        {"properties": {str(number): nested(9) for number in range(60)}},
        {"enum": ["x" * (LONGEST + 1)]},
    ],
    ids=lambda schema: json.dumps(schema)[:50],
)  # fmt: skip
def test_a_schema_that_cannot_be_followed_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError):
        json_grammar(schema)


KEYWORDS = (*_KNOWN, "pattern", "minimum")
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 1200) | st.floats() | st.text(max_size=4)
    | st.sampled_from(("string", "object", "array", "#", "#/$defs/a", "date", "a")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=300)
@given(st.dictionaries(st.sampled_from(KEYWORDS), SCHEMAS, max_size=5), st.sampled_from((None, *_KINDS)))
def test_any_value_of_any_keyword_gives_a_grammar_or_is_refused(schema: dict[str, Any], kind: str | None) -> None:
    wanted = schema if kind is None else {**schema, "type": kind}
    with suppress(SchemaError):
        assert json_grammar(wanted).startswith("root ::= ")
    assert grammar_of("json-0", [wanted], is_strict=False).startswith("root ::= ")


@pytest.mark.parametrize("keyword", KEYWORDS)
@pytest.mark.parametrize(
    "value",
    [None, True, 0, -1, 1.5, math.inf, math.nan, 10**400, "", "x", [], [[]], ["x"], [{}], [None], {}, {"a": []}],
    ids=str,
)  # fmt: skip
def test_a_malformed_value_of_a_keyword_is_no_failure(keyword: str, value: Any) -> None:
    for kind in _KINDS:
        with suppress(SchemaError):
            json_grammar({"type": kind, keyword: value})
        assert grammar_of("json-0", [{"type": kind, keyword: value}], is_strict=False)


def test_a_value_nested_too_deeply_is_refused() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    with pytest.raises(SchemaError):
        json_grammar({"const": value})
    assert grammar_of("json-0", [{"const": value}], is_strict=False)


MANY = 1 << 15
LONG = {"type": "object", "properties": {"a" * (1 << 17): {"type": "string"}}}
# 256 pointers to one place, each of which is followed.
ALIASES = [{"$ref": f"#/$defs/{''.join(each)}"} for each in itertools.product(("~", "~0"), repeat=8)]
WIDE = {f"key {number}": 0 for number in range(1 << 12)}
LONG_POINTER = {"$ref": "#/$defs/" + "k" * (1 << 18)}


def chained() -> dict[str, Any]:
    """Alternatives within alternatives, each of which leads far down, and from there far down again, many times."""
    path = "#" + "/a" * 480
    found: dict[str, Any] = {f"{place}": {"$ref": f"{path}/{place + 1}"} for place in range(22)} | {"22": {}}
    for _ in range(480):
        found = {"a": found}
    alternatives: list[dict[str, Any]] = [{"$ref": f"{path}/0"}] * 200
    for _ in range(6):
        alternatives = [{"anyOf": alternatives}, *alternatives[1:]]
    return {**found, "anyOf": alternatives}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["string"] * 2000, **WIDE},
        {"enum": [1] * MANY, "type": ["a"] * MANY},
        {"type": ["object"] * 400, "required": ["a"] * MANY},
        {"$defs": {"a": {"enum": [""] * MANY}}, "anyOf": [{"$ref": "#/$defs/a"}] * 400},
        {"$defs": {"~" * 8: LONG}, "anyOf": ALIASES},
        {"$defs": {"~" * 8: {"type": "null", "enum": [1] * MANY + [None]}}, "anyOf": ALIASES},
        {"$defs": {"a": LONG_POINTER, "k" * (1 << 18): LONG_POINTER}, "anyOf": [{"$ref": "#/$defs/a"}] * 500},
        {"$defs": {"a": {"$ref": "#/$defs/a", **WIDE}}, "anyOf": [{"$ref": "#/$defs/a"}] * 500},
        chained(),
    ],
    ids=lambda schema: json.dumps(schema)[:50],
)  # fmt: skip
def test_no_part_of_a_schema_takes_much_time_or_memory_by_being_used_often(schema: dict[str, Any]) -> None:
    tracemalloc.start()
    started = time.process_time()
    try:
        for is_strict in (True, False):
            with suppress(SchemaError):
                json_grammar(schema, is_strict)
        assert time.process_time() - started < 1  # was up to a minute
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_schema_that_is_only_itself_has_no_grammar(model: LlamaModel) -> None:
    loop = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    for schema in ({"$ref": "#"}, loop):
        with pytest.raises(SceError, match="cannot read the grammar"):
            model.open_grammar(json_grammar(schema))


def test_a_schema_of_tools_that_cannot_be_followed_allows_any_object(allows: Allows) -> None:
    grammar = grammar_of('"a" json-0 | "b" json-1', [{"$ref": "#/missing"}, {"type": "string", "pattern": "x"}], False)
    assert allows(grammar, 'a{"any":1}')
    assert allows(grammar, 'b"y"')
    assert not allows(grammar, 'b{"any":1}')


@pytest.mark.parametrize(
    ("schema", "right"),
    [
        ({"properties": {"a": {"type": "integer"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, '{"a":1}'),
        ({"properties": {"a": {"enum": [1]}}, "allOf": [{"required": ["a"]}]}, '{"a":1}'),
        ({"properties": {"a": {"$ref": "#/$defs/b", "maxLength": 1}}, "$defs": {"b": {"minLength": 1}}}, '{"a":"x"}'),
        ({"oneOf": [{"type": "string"}], "anyOf": [{"type": "string"}, {"type": "null"}]}, '"x"'),
    ],
)
def test_a_schema_of_tools_allows_all_that_holds_next_to_alternatives(
    allows: Allows, schema: dict[str, Any], right: str
) -> None:
    grammar = grammar_of("json-0", [schema], is_strict=False)
    assert allows(grammar, right)
    assert not allows(grammar, '{"a":"xy"}')


LOOK = {"type": "function", "function": {"name": "look", "parameters": {
    "type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]}}}  # fmt: skip
WALK = {"type": "function", "function": {"name": "walk", "parameters": {"additionalProperties": True}}}


@pytest.mark.parametrize(
    "notation",
    [Notation("<tool_call>\n", "name", "arguments", "\n</tool_call>"), Notation("", "name", "arguments", "")],
    ids=["with a sign", "without"],
)
def test_an_answer_that_is_nothing_but_a_call_follows_the_schema_of_its_tool(
    allows: Allows, notation: Notation
) -> None:
    tools = read_tools({"tools": [LOOK, WALK]}, notation)
    assert tools is not None
    grammar = tools.grammar().replace("root ::=", "other ::=").replace("whole ::=", "root ::=")
    for text, name in (
        ('{"name": "look", "arguments": {"at": 3}}', "look"),
        ('```json\n{\n  "name": "look",\n  "arguments": {\n    "at": 3\n  }\n}\n```', "look"),
        ('\n```{"name":"walk","arguments":{"any": [1]}}```\n', "walk"),
    ):
        assert allows(grammar, text)
        assert [call["name"] for call in tools.read(text)[1]] == [name]
        assert tools.within in text
    for wrong in ('{"at": "3"}', "{}", '"{}"', "null", '{"at": 3}, "x": 1'):
        assert not allows(grammar, f'{{"name": "look", "arguments": {wrong}}}')
    assert not allows(grammar, '{"name": "other", "arguments": {}}')


def test_a_call_follows_the_schema_of_its_tool_from_its_sign_on(allows: Allows) -> None:
    tools = read_tools({"tools": [LOOK, WALK]}, Notation("\n<tool_call>\n", "name", "arguments", "\n</tool_call>"))
    assert tools is not None
    look = '{"name": "look", "arguments": {"at": 3}}\n</tool_call>'
    walk = '{"name": "walk", "arguments": {}}\n</tool_call>'
    for rest in (look, f"\n{walk}", f"\n{look}\n\n<tool_call>\n{walk}"):
        assert allows(tools.grammar(), rest)
        assert len(tools.read(f"Well: {tools.begin}{rest}")[1]) == rest.count("arguments")
        assert not allows(tools.grammar(), rest.replace("look", "other").replace("{}", "[]"))


@pytest.mark.parametrize(
    ("parameters", "right"),
    [
        *((none, ["{}"]) for none in (None, {}, {"description": "None."}, {"type": "object", "properties": {}},
                                      {"type": "object", "properties": {}, "required": []})),
        ({"additionalProperties": True}, ["{}", '{"a": 1}']), ({"required": ["a"]}, ['{"a": 1}']),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"additionalProperties": {"type": "integer"}}}}, ["{}", '{"a": 1}']),
    ],
    ids=str,
)  # fmt: skip
def test_the_arguments_of_a_call_are_an_object_of_those_that_its_tool_has(
    allows: Allows, parameters: Any, right: list[str]
) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": parameters}}
    tools = read_tools({"tools": [tool], "tool_choice": "required"}, Notation("", "name", "arguments", ""))
    assert tools is not None
    every = ("{}", '{"a": 1}', "5", '"a"', "[]", "null")
    found = [each for each in every if allows(tools.grammar(), f'{{"name": "look", "arguments": {each}}}')]
    assert found == right


def test_tools_whose_schemas_have_no_room_in_a_grammar_take_any_object(allows: Allows) -> None:
    wide = {"type": "object", "properties": {f"property {number}": {"type": "integer"} for number in range(60)}}
    offered = [{"type": "function", "function": {"name": f"tool{each}", "parameters": wide}} for each in range(32)]
    tools = read_tools({"tools": offered, "tool_choice": "required"}, Notation("", "name", "arguments", ""))
    assert tools is not None
    assert len(tools.grammar()) <= LONGEST
    for name, is_bound in (("tool0", True), ("tool31", False)):
        assert allows(tools.grammar(), f'{{"name": "{name}", "arguments": {{"property 7": 7}}}}')
        assert allows(tools.grammar(), f'{{"name": "{name}", "arguments": {{"property 7": ""}}}}') != is_bound
        assert not allows(tools.grammar(), f'{{"name": "{name}", "arguments": 7}}')


@pytest.mark.parametrize("text", ['"', "\\", "\n", "é", "\x01", "\u2028", "😀", "]", 'a"::=b'])
def test_a_literal_is_the_text_itself(allows: Allows, text: str) -> None:
    assert allows(f"root ::= {literal(text)}\n", text)
