"""The rules of any JSON text in llama.cpp's GBNF, and of strings that have a format."""

from __future__ import annotations

_SPACE = 'ws ::= (" " | "\\n" [ \\t]{0,20})?'
# An escape of half a surrogate pair has its other half: alone it is text that nobody can encode.
_CHAR = (
    r'char ::= [^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" ([0-9a-cefA-CEF] hex hex hex | [dD] [0-7] hex hex | '
    r'[dD] [89abAB] hex hex "\\u" [dD] [c-fC-F] hex hex))'
)
# Days that exist: what reads a date refuses others.
_DAY = (
    '("0" [13578] | "1" [02]) "-" ("0" [1-9] | [12] [0-9] | "3" [01]) | ("0" [469] | "11") "-" ("0" [1-9] | [12] [0-9] '
    '| "30") | "02-" ("0" [1-9] | "1" [0-9] | "2" [0-8])'
)
_LEAP = '("0" [48] | [2468] [048] | [13579] [26])'
# The bounds that libraries for JavaScript write for every whole number; `integer` stays within them.
SAFE_BOUNDS = {"minimum": 1 - 2**53, "maximum": 2**53 - 1}
# What they write for every record; all names are texts.
ALL_NAMES = {"propertyNames": {"type": "string"}}
RULES = (
    'value ::= object | array | string | number | ("true" | "false" | "null") ws',
    'object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws',
    'array ::= "[" ws (value ("," ws value)*)? "]" ws',
    'string ::= "\\"" char* "\\"" ws',
    'number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})? ws',
    'integer ::= "-"? ("0" | [1-8] [0-9]{0,15} | "9" [0-9]{0,14}) ws',
    'boolean ::= ("true" | "false") ws',
    'null ::= "null" ws',
    _CHAR,
    "hex ::= [0-9a-fA-F]",
    f'date ::= [0-9]{{4}} "-" ({_DAY}) | ([0-9]{{2}} {_LEAP} | ({_LEAP} | "00") "00") "-02-29"',
    'clock ::= ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9]',
    'time ::= clock ":" [0-5] [0-9] ("." [0-9]{3})? ("Z" | [-+] clock)',
    _SPACE,
)
FORMATS = {
    "date": "date",
    "time": "time",
    "date-time": 'date "T" time',
    "uuid": '[0-9a-f]{8} "-" [0-9a-f]{4} "-" [0-9a-f]{4} "-" [0-9a-f]{4} "-" [0-9a-f]{12}',
}
