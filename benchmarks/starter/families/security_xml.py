"""Families that read small XML texts, where the standard parsers are the short way (Bandit B314, B318)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from family import Attack, DrawAttack

from families._security_pieces import (
    KEEP_ENTRIES,
    KEEP_NUMBERS,
    REPORT_ENTRIES,
    REPORT_NUMBERS,
    Source,
    combine,
    entries,
    numbers,
    pick,
    replace_last,
)


def _draw_texts(rng: random.Random) -> str:
    return "<a>" + "".join(f"<n>{x}</n>" for x in numbers(rng, 4, 6)) + "</a>\n"


def _draw_attributes(rng: random.Random) -> str:
    return "<a>" + "".join(f'<n v="{x}"/>' for x in numbers(rng, 4, 5)) + "</a>\n"


def _draw_tags(rng: random.Random) -> str:
    return "<bag>" + "".join(f"<{name}>{n}</{name}>" for name, n in entries(rng, 3, 4).items()) + "</bag>\n"


def _draw_root(rng: random.Random) -> str:
    return "<bag " + " ".join(f'{name}="{n}"' for name, n in entries(rng).items()) + "/>\n"


def _entity_in(draw: Callable[[random.Random], str]) -> tuple[DrawAttack, ...]:
    """The parsers expand entities that a text declares: a few lines can fill the memory."""

    def attack_after(start: str) -> DrawAttack:
        def attack(rng: random.Random) -> Attack:
            text = replace_last(r"-?\d+", "&e;", draw(rng))
            tag = text[1 : text.index(">")].split()[0].rstrip("/")
            # Its digits as character references: a program that collects all numbers of the text reads others.
            number = "".join(f"&#{ord(digit)};" for digit in str(rng.randint(1, 12)))
            declared = f"{start}<!DOCTYPE {tag} [<!ENTITY e '{number}'>]>"
            ignoring = (re.sub(_ENTITY, "", text), text.replace("&e;", "0"))
            return Attack("declared entity", 776, declared + text, "unsafe", harmless=ignoring)

        return attack

    return attack_after(""), attack_after("<?xml version='1.0'?><!-- -->")


# The element or attribute with the entity.
_ENTITY = r'<(\w+)>&e;</\1>|<n v="&e;"/>| \w+="&e;"'


_ET = "import xml.etree.ElementTree as ET\n"
_DOM = "from xml.dom import minidom\n"
_ROOT = f"{_DOM}root = minidom.parseString(input()).documentElement\n"
_LISTS = {
    "text": Source(
        (
            "One line is an XML element a whose n children hold integers as text.",
            "Some XML is given: its tag a encloses tags n, each around an integer.",
            "Get the integers inside each tag n of a short XML document.",
        ),
        _draw_texts,
        (
            f"{_ET}$v = [int(node.text) for node in ET.fromstring(input())]",
            f'{_ET}root = ET.fromstring(input())\n$v = []\nfor node in root.findall("n"):\n'
            f"    $v.append(int(node.text))",
        ),
        (
            'import re\n$v = [int($x) for $x in re.findall(r">(-?\\d+)<", input())]',
            '$v = []\nfor part in input().split("<n>")[1:]:\n    $v.append(int(part.split("<")[0]))',
        ),
        _entity_in(_draw_texts),
    ),
    "attribute": Source(
        (
            "One line is an XML element a whose n children each have an integer attribute v.",
            "Some XML is given: its tag a encloses tags n, and v says the integer of each.",
            "Get the integers that attributes v have in a short XML document.",
        ),
        _draw_attributes,
        (
            f'{_ET}$v = [int(node.get("v")) for node in ET.fromstring(input())]',
            f'{_ET}root = ET.fromstring(input())\n$v = []\nfor node in root.iter("n"):\n'
            f'    $v.append(int(node.attrib["v"]))',
        ),
        (
            "import re\n$v = [int($x) for $x in re.findall(r'v=\"(-?\\d+)\"', input())]",
            "$v = [int($x) for $x in input().split('\"')[1::2]]",
        ),
        _entity_in(_draw_attributes),
    ),
}
_BAGS = {
    "tags": Source(
        (
            "One line is an XML element bag; the tag of each child is a name and its text that entry's number.",
            "Some XML is given: every tag in bag names an entry, and encloses its number.",
        ),
        _draw_tags,
        (
            f"{_ROOT}$d = {{node.tagName: int(node.firstChild.data) for node in root.childNodes}}",
            f"{_ROOT}$d = {{}}\nfor node in root.childNodes:\n    $d[node.tagName] = int(node.firstChild.data)",
        ),
        (
            'import re\n$d = {$k: int($n) for $k, $n in re.findall(r"<(\\w+)>(\\d+)", input())}',
            '$d = {}\nfor part in input()[5:-6].split("</")[:-1]:\n'
            '    $k, $n = part.split("<")[-1].split(">")\n'
            "    $d[$k] = int($n)",
        ),
        _entity_in(_draw_tags),
    ),
    "attributes": Source(
        (
            "One line is an XML element bag; each attribute is an entry with a name and a number.",
            "Some XML is given: the only tag, bag, lists its entries as attributes with a number each.",
        ),
        _draw_root,
        (
            f"{_ROOT}$d = {{$k: int($n) for $k, $n in root.attributes.items()}}",
            f"{_ROOT}$d = {{}}\nfor $k, $n in root.attributes.items():\n    $d[$k] = int($n)",
        ),
        (
            "import re\n$d = {$k: int($n) for $k, $n in re.findall(r'(\\w+)=\"(\\d+)\"', input())}",
            '$d = {}\nfor part in input()[5:-2].split():\n    $k, $n = part.split("=")\n'
            "    $d[$k] = int($n.strip('\"'))",
        ),
        _entity_in(_draw_root),
    ),
}

FAMILIES = (
    combine(
        "xml-numbers",
        _LISTS,
        pick(KEEP_NUMBERS, "even positive once small"),
        pick(REPORT_NUMBERS, "squares sorted ends steps"),
    ),
    combine(
        "xml-entries",
        _BAGS,
        pick(KEEP_ENTRIES, "odd lesser shared"),
        pick(REPORT_ENTRIES, "names total ranked count-average initials"),
    ),
)
