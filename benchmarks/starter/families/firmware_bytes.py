"""Firmware families about bytes on a wire: checksums, frames with a length, the order of bytes."""

from __future__ import annotations

import random

from family import Family

from families._compose import only, piece, without
from families._firmware import FLAG_REPORTS, HEX, REPORTS, XOR, firmware
from families._inputs import line


def _bytes(rng: random.Random) -> str:
    return line([rng.randint(0, 255) for _ in range(rng.randint(3, 6))])


def _shifted_left(bits: int, polynomial: str) -> dict[str, str]:
    """A step of a CRC whose register moves to the left."""
    top, mask = hex(1 << (bits - 1)), hex((1 << bits) - 1)
    return {
        "bits": str(bits),
        "ones": mask,
        "unit": f"uint{bits}_t",
        "enter": f"crc ^= $x << {bits - 8}",
        "move": f"(crc << 1 ^ {polynomial} if crc & {top} else crc << 1) & {mask}",
        "c_enter": "crc ^= (uint8_t)$x;" if bits == 8 else "crc ^= (uint16_t)($x << 8);",
        "c_move": f"(uint{bits}_t)(crc & {top} ? crc << 1 ^ {polynomial} : crc << 1)",
    }


_CRCS = {
    "crc-8": piece(
        "an 8-bit CRC with the polynomial 0x07, highest bit first",
        "CRC-8: XOR the byte into the register, then eight times shift left by one, and if a 1 fell out XOR 0x07",
        **_shifted_left(8, "0x07"),
    ),
    "maxim": piece(
        "an 8-bit CRC with the polynomial 0x31, highest bit first",
        "the CRC of many sensors: XOR the byte in, then for each of 8 bits shift left and XOR 0x31 if a 1 was shifted "
        "out of the byte",
        **_shifted_left(8, "0x31"),
    ),
    "ccitt": piece(
        "a 16-bit CRC with the polynomial 0x1021, highest bit first",
        "CRC-CCITT: XOR the byte into the upper half of 16 bits, then eight times shift left, with XOR 0x1021 whenever "
        "bit 15 was set",
        **_shifted_left(16, "0x1021"),
    ),
    "modbus": piece(
        "a reflected 16-bit CRC with the polynomial 0xA001, lowest bit first",
        "the CRC of Modbus: XOR the byte into the lower half of 16 bits, then eight times shift right, with XOR 0xA001 "
        "whenever bit 0 was set",
        bits="16",
        ones="0xffff",
        unit="uint16_t",
        enter="crc ^= $x",
        move="crc >> 1 ^ 0xA001 if crc & 1 else crc >> 1",
        c_enter="crc ^= (uint16_t)$x;",
        c_move="crc & 1 ? crc >> 1 ^ 0xA001 : crc >> 1",
    ),
}
_STARTS = {
    "zero": piece("0", "all bits 0", begin="0"),
    "ones": piece("all ones", "every bit set to 1", begin="$ones"),
}
_ENDS = {
    "plain": piece("The register is the CRC", "Nothing is done to it at the end", end="crc"),
    "inverted": piece("The CRC is the inverted register", "All its bits are flipped in the end", end="crc ^ $ones"),
    "low": piece("Only its lower 4 bits are used", "In the end AND it with 0xF", end="crc & 0xF"),
}
CRC = firmware(
    "crc",
    (
        "Read a line of bytes in decimal. Compute $crc; the register starts with $start. $end.",
        "Bytes from 0 to 255 are on the input line. Let a register of $start run through them: $crc. $end.",
        "A message, given as decimal bytes on one line, is protected by $crc. First the register holds $start. $end.",
    ),
    {"crc": _CRCS, "start": _STARTS, "end": _ENDS},
    ("the CRCs after each byte", "all CRCs, taken after every byte", "what the CRC is after byte 1, byte 2 and so on"),
    _bytes,
    setup="crc = $begin",
    python="$enter\nfor _ in range(8):\n    crc = $move\n$ys.append($end)",
    state="$unit crc = $begin;",
    step="$enter\nfor (uint8_t bit = 0; bit < 8; bit++)\n    crc = $move;\nemit($end);",
    reports={**only(REPORTS, "all", "last", "max"), "xor": XOR, "hex": HEX},
)

_KINDS = {
    "sum": piece(
        "the sum of the payload modulo 256",
        "all payload bytes added up in eight bits",
        into="(check + $x) % 256",
        c_into="(uint8_t)(check + $x)",
        first="0",
    ),
    "xor": piece("the XOR of the payload", "all payload bytes combined by XOR", into="check ^ $x", first="0"),
    "complement": piece(
        "255 minus the sum of the payload, modulo 256",
        "a byte that starts at 255, from which all payload bytes are subtracted in eight bits",
        into="(check - $x) % 256",
        c_into="(uint8_t)(check - $x)",
        first="255",
    ),
}
_MARKS = {"aa": piece("170", "0xAA (170)", mark="170"), "seven-e": piece("126", "0x7E (126)", mark="126")}
_GOOD = "if $x == check:\n    $ys.append({})"
_C_GOOD = "if ($x == check)\n    emit({});"
_FRAME_VALUES = {
    "sums": piece(
        "sums of the payload of each good frame",
        "payload totals, one per frame that is right",
        memory="int32_t value = 0;",
        clear="value = 0;",
        add="value += $x",
        c_add="value += $x;",
        judge=_GOOD.format("value"),
        c_judge=_C_GOOD.format("value"),
    ),
    "tops": piece(
        "largest payload bytes of each good frame",
        "payload maxima, one per frame that is right",
        memory="int32_t value = 0;",
        clear="value = 0;",
        add="value = max(value, $x)",
        c_add="if ($x > value)\n    value = $x;",
        judge=_GOOD.format("value"),
        c_judge=_C_GOOD.format("value"),
    ),
    "words": piece(
        "payloads of each good frame as one number, the first byte being the highest",
        "big-endian values of the payloads that arrived in frames that are right",
        memory="int32_t value = 0;",
        clear="value = 0;",
        add="value = value * 256 + $x",
        c_add="value = value << 8 | $x;",
        judge=_GOOD.format("value"),
        c_judge=_C_GOOD.format("value"),
    ),
    "verdicts": piece(
        "verdicts, 1 for each good frame and 0 for each with a wrong check byte",
        "results of all frames that reach their check byte: 1 if it is right, else 0",
        memory="",
        clear="",
        add="",
        c_add="",
        judge="$ys.append(int($x == check))",
        c_judge="emit($x == check);",
    ),
}


def _frames(rng: random.Random) -> str:
    stream: list[int] = []
    mark = rng.choice((170, 126))
    kind = rng.randint(0, 2)
    for number in range(rng.randint(3, 4)):
        stream += [rng.randint(0, 99)] * (rng.random() < 0.3)
        payload = [rng.randint(0, 60) for _ in range(rng.randint(1, 3))]
        check = (sum(payload), payload[0] ^ (payload[1:] or [0])[0] ^ (payload[2:] or [0])[0], 255 - sum(payload))[kind]
        stream += [mark, len(payload), *payload, check + (number > 0 and rng.random() < 0.3)]
    return line(stream)


FRAMES = firmware(
    "length-frames",
    (
        "Read a line of bytes in decimal, a serial stream. A frame is the byte $mark, a length from 1 to 3, as many "
        "payload bytes, and a check byte: $check. Skip bytes until one is $mark; after a length that is not allowed "
        "and after each frame do so again.",
        "A parser takes decimal bytes from the line one by one: it waits for $mark, then takes a length (1, 2 or 3; "
        "with any other it waits again), so many bytes of payload, and a last byte that must be $check. Then it waits "
        "again.",
        "Packets hide among the decimal bytes of a line. Each begins with $mark and has then its length n (if it is "
        "not 1 to 3, this is no packet), n data bytes and $check. What is between packets does not count.",
    ),
    {"mark": _MARKS, "check": _KINDS, "value": _FRAME_VALUES},
    ("the $value", "these: $value", "$value"),
    _frames,
    setup="phase = left = check = value = 0",
    python="""\
if phase == 0:
    phase = int($x == $mark)
elif phase == 1:
    left, check, value = $x, $first, 0
    phase = 2 if 1 <= left <= 3 else 0
elif phase == 2:
    check = $into
    $add
    left -= 1
    phase = 2 if left else 3
else:
    $judge
    phase = 0""",
    state="enum { WAIT, LENGTH, PAYLOAD, CHECK } phase = WAIT;\nuint8_t left = 0, check = 0;\n$memory",
    step="""\
switch (phase) {
case WAIT:
    if ($x == $mark)
        phase = LENGTH;
    break;
case LENGTH:
    left = (uint8_t)$x;
    check = $first;
    $clear
    phase = left >= 1 && left <= 3 ? PAYLOAD : WAIT;
    break;
case PAYLOAD:
    check = $into;
    $add
    left--;
    if (left == 0)
        phase = CHECK;
    break;
case CHECK:
    $judge
    phase = WAIT;
    break;
}""",
    skip=lambda mark, check, value, report: value == "verdicts" and report not in FLAG_REPORTS,
)

_GROUPS = {
    "two": piece("two", "2", width="2", top="0x8000", range="0x10000"),
    "three": piece("three", "3", width="3", top="0x800000", range="0x1000000"),
}
_ORDERS = {
    "little": piece(
        "the first byte is the lowest (little-endian)",
        "in little-endian order, lowest byte in front,",
        join="value | $x << 8 * place",
        c_join="value | (uint32_t)$x << (8 * place)",
    ),
    "big": piece(
        "the first byte is the highest (big-endian)",
        "in big-endian order, highest byte in front,",
        join="value << 8 | $x",
        c_join="value << 8 | (uint32_t)$x",
    ),
}
_SIGNS = {
    "unsigned": piece("They are unsigned", "There is no sign bit", whole_value="value", c_whole_value="(int32_t)value"),
    "signed": piece(
        "They are signed, in two's complement",
        "Their top bit is the sign (two's complement)",
        whole_value="value - $range if value & $top else value",
        c_whole_value="value & $top ? (int32_t)value - $range : (int32_t)value",
    ),
    "magnitude": piece(
        "Their top bit is a sign, and the other bits are the absolute value",
        "They are stored as sign (the top bit, 1 is minus) and magnitude",
        whole_value="$top - value if value & $top else value",
        c_whole_value="value & $top ? $top - (int32_t)value : (int32_t)value",
    ),
}


def _packed(rng: random.Random) -> str:
    return line([rng.randint(0, 255) for _ in range(rng.choice((6, 12)))])


ORDER = firmware(
    "byte-order",
    (
        "Read a line of bytes in decimal. Every $width of them are one number, where $order. $sign.",
        "The input line holds bytes, in decimal, of a memory dump. $sign: numbers of $width bytes each, $order one "
        "after the other.",
        "Decode a packet, given as decimal bytes on a line, into integers of $width bytes; $order as the device sends "
        "them. $sign.",
    ),
    {"width": _GROUPS, "order": _ORDERS, "sign": _SIGNS},
    ("the numbers", "all that is decoded", "the decoded integers"),
    _packed,
    setup="value = place = 0",
    python="value = $join\nplace += 1\nif place == $width:\n    $ys.append($whole_value)\n    value = place = 0",
    state="uint32_t value = 0;\nuint8_t place = 0;",
    step="value = $join;\nplace++;\nif (place == $width) {\n    emit($whole_value);\n    value = 0;\n    place = 0;\n}",
    reports={**without(REPORTS, "changes"), "xor": XOR},
)

FAMILIES: tuple[Family, ...] = (CRC, FRAMES, ORDER)
