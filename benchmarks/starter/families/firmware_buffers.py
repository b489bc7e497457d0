"""Firmware families about state without a heap: ring buffers, pools of blocks, state machines, bit fields."""

from __future__ import annotations

import random

from family import Family

from families._compose import Piece, piece
from families._firmware import (
    FLAG_REPORTS,
    HEX,
    HEX_NUMBERS,
    LETTERS,
    REPORTS,
    XOR,
    firmware,
)
from families._inputs import line


def _puts_and_gets(rng: random.Random) -> str:
    items = [rng.randint(1, 30) if rng.random() < 0.7 else 0 for _ in range(rng.randint(5, 8))]
    return line([rng.randint(1, 30), rng.randint(1, 30), *items, 0])


_CAPACITIES = {
    "two": piece("2", "two", capacity="2"),
    "three": piece("3", "three", capacity="3"),
    "four": piece("4", "four", capacity="4"),
}
_NEXT = "head = (head + 1) % CAPACITY;"
_FULL = {
    "drop": piece(
        "a value that comes while it is full is thrown away", "new values are lost as long as no place is free",
        full="pass", c_full="",
    ),
    "overwrite": piece(
        "a value that comes while it is full replaces the oldest one, which is lost",
        "without a free place the oldest value has to go for a new one",
        full="buffer.append($x)\nbuffer.pop(0)",
        c_full=f"buffer[head] = (int16_t)$x;\n{_NEXT}",
    ),
    "restart": piece(
        "a value that comes while it is full empties it and is then its only one",
        "without a free place a new value clears the whole buffer and goes in alone",
        full="buffer = [$x]",
        c_full="buffer[head] = (int16_t)$x;\nfill = 1;",
    ),
}  # fmt: skip
_TAKE = f"if (fill > 0) {{\n    fill--;\n    {_NEXT}\n}}"
_RING_VALUES = {
    "taken": piece(
        "values taken out (-1 from an empty buffer)",
        "results of all requests, each the oldest value or -1 if there was none",
        note="if $x == 0:\n    $ys.append(taken)",
        take_out=f"int16_t taken = -1;\nif (fill > 0) {{\n    taken = buffer[head];\n    fill--;\n    {_NEXT}\n}}\n"
        "emit(taken);",
        c_note="",
    ),
    "oldest": piece(
        "oldest values in it, one after each number of the line (-1 while it is empty)",
        "values that would be taken next, looked at after every step (-1 if there is none)",
        note="$ys.append(buffer[0] if buffer else -1)",
        take_out=_TAKE,
        c_note="emit(fill > 0 ? buffer[head] : -1);",
    ),
    "totals": piece(
        "sums of its values, one after each number of the line",
        "totals of what is stored, taken after every step",
        note="$ys.append(sum(buffer))",
        take_out=_TAKE,
        c_note="int32_t sum = 0;\nfor (uint8_t i = 0; i < fill; i++)\n    sum += buffer[(head + i) % CAPACITY];\n"
        "emit(sum);",
    ),
}
RING = firmware(
    "ring-buffer",
    (
        "A ring buffer has room for $capacity values. Read a line of integers: a positive one is put in, 0 takes out "
        "the oldest value. Overflow: $full.",
        "Values go through a queue with $capacity places. On the input line a number above 0 enters, and a 0 asks for "
        "the value that waits longest. Moreover, $full.",
        "Between an interrupt and the main loop there is a FIFO of size $capacity. The line tells what happens: a 0 "
        "reads from the FIFO, anything above is written to it, and $full.",
    ),
    {"capacity": _CAPACITIES, "full": _FULL, "value": _RING_VALUES},
    ("the $value", "these: $value", "$value"),
    _puts_and_gets,
    setup="buffer = []",
    python="""\
taken = -1
if $x == 0:
    if buffer:
        taken = buffer.pop(0)
elif len(buffer) == $capacity:
    $full
else:
    buffer.append($x)
$note""",
    constants="#define CAPACITY $capacity",
    state="int16_t buffer[CAPACITY] = {0};\nuint8_t head = 0, fill = 0;",
    step="""\
if ($x == 0) {
    $take_out
} else if (fill < CAPACITY) {
    buffer[(head + fill) % CAPACITY] = (int16_t)$x;
    fill++;
} else {
    $full
}
$note""",
)


def _allocations(rng: random.Random) -> str:
    return line([0, 0, *(rng.choice((0, 0, 0, 1, 2, 3)) for _ in range(rng.randint(6, 9)))])


_POOLS = {
    "three": piece("3", "three", blocks="3"),
    "four": piece("4", "four", blocks="4"),
    "five": piece("5", "five", blocks="5"),
}
_CHOICES = {
    "lowest": piece(
        "the free block with the lowest number is handed out",
        "a request gets the first block that is free, counting up from 1",
        order="range(1, $blocks + 1)",
        first="1",
        following="i + 1",
        memory="uint8_t used = 0;",
        remember="",
    ),
    "highest": piece(
        "the free block with the highest number is handed out",
        "a request gets the first block that is free, counting down from the last one",
        order="range($blocks, 0, -1)",
        first="BLOCKS",
        following="i - 1",
        memory="uint8_t used = 0;",
        remember="",
    ),
    "round": piece(
        "the search for a free block begins behind the one that was handed out last (at first with 1) and goes round",
        "a request gets the next free block after the latest one, and after the last block comes block 1 again",
        order="[(latest + i) % $blocks + 1 for i in range($blocks)]",
        first="latest % BLOCKS + 1",
        following="i % BLOCKS + 1",
        memory="uint8_t used = 0, latest = 0;",
        remember="latest = block;",
    ),
}
_POOL_VALUES = {
    "blocks": piece(
        "numbers of the blocks handed out, 0 for a request that fails",
        "answers to all requests: a block number, or 0 when the pool is exhausted",
        note="if $x == 0:\n    $ys.append(block)",
        handed="emit(block);",
        c_note="",
    ),
    "used": piece(
        "counts of blocks in use, one after each number of the line",
        "how many blocks are taken after every step",
        note="$ys.append(len(used))",
        handed="",
        c_note="uint8_t count = 0;\nfor (uint8_t i = 1; i <= BLOCKS; i++)\n    count += used >> i & 1;\nemit(count);",
    ),
    "mask": piece(
        "bit masks of the blocks in use (bit 0 is block 1), one after each number of the line",
        "usage bitmaps after every step, in which block b stands for 2 to the power of b - 1",
        note="$ys.append(sum(1 << (i - 1) for i in used))",
        handed="",
        c_note="emit(used >> 1);",
    ),
}
POOL = firmware(
    "block-pool",
    (
        "Without a heap, a pool of $blocks blocks, numbered from 1 and all free, serves requests. Read a line of "
        "integers: 0 asks for a block, and b > 0 gives block b back (nothing happens if it is free). Of free ones, "
        "$choice.",
        "There are $blocks static buffers, 1, 2 and so on. On the input line a 0 is an allocation, any other number "
        "frees the buffer with this number, which changes nothing if it is not in use. How a block is found: $choice.",
        "Memory is a fixed array of $blocks blocks (the first is block 1). The line holds 0 for each malloc-like call "
        "and the number of a block for each free-like call; to free what is free does no harm. Here $choice.",
    ),
    {"blocks": _POOLS, "choice": _CHOICES, "value": _POOL_VALUES},
    ("the $value", "these: $value", "$value"),
    _allocations,
    setup="used, latest = set(), 0",
    python="""\
if $x == 0:
    block = next((i for i in $order if i not in used), 0)
    if block:
        used.add(block)
        latest = block
else:
    used.discard($x)
$note""",
    constants="#define BLOCKS $blocks",
    state="$memory",
    step="""\
if ($x == 0) {
    uint8_t block = 0;
    uint8_t i = $first;
    for (uint8_t tries = 0; tries < BLOCKS && block == 0; tries++) {
        if (!(used >> i & 1))
            block = i;
        i = $following;
    }
    if (block != 0) {
        used |= 1u << block;
        $remember
    }
    $handed
} else {
    used &= ~(1u << $x);
}
$note""",
    skip=lambda blocks, choice, value, report: (
        (value == "used" and (choice != "lowest" or report in ("min", "max"))) or report == "min" or report == "max"
    ),
)

_MACHINES = {
    "door": "a01 b10 c02 d20",
    "charger": "a01 b12 c23 a23 d10 d20 e30",
    "motor": "a01 b12 c21 d10 d20 e13 e23 a30",
    "link": "a01 b12 c20 d10 d21 e12",
}


def _machine(transitions: str) -> Piece:
    """A machine from its transitions: event, state, next state."""
    rows = [tuple(row) for row in transitions.split()]
    cases = ""
    for state in sorted({row[1] for row in rows}):
        chain = "".join(f"$x == '{event}' ? {after} : " for event, of, after in rows if of == state)
        cases += f"case {state}:\n    state = {chain}$other;\n    break;\n"
    return piece(
        "; ".join(f"{event} leads from {of} to {after}" for event, of, after in rows),
        ", ".join(f"{of} -{event}-> {after}" for event, of, after in rows),
        known=repr({(int(of), event): int(after) for event, of, after in rows}),
        cases=cases.rstrip("\n"),
    )


_OTHER = {
    "stay": piece("any other event is ignored", "what is not listed changes nothing", other="state"),
    "reset": piece("any other event leads back to state 0", "what is not listed resets the machine to 0", other="0"),
}
_EVENTS = {
    "states": piece(
        "states, one after each event", "states that the events lead to", note="after", c_note="state", remember=""
    ),
    "moves": piece(
        "flags, 1 for each event that changes the state and 0 for each other",
        "marks of the events: 1 if the state after it is a new one, else 0",
        note="int(after != state)",
        c_note="state != before",
        remember="uint8_t before = state;",
    ),
    "doubled": piece(
        "values 10 * old state + new state, one for each event",
        "two-digit logs of every event (state before, state after; a leading 0 is left out)",
        note="10 * state + after",
        c_note="10 * before + state",
        remember="uint8_t before = state;",
    ),
}


def _events(rng: random.Random) -> str:
    return line(rng.choices("aabbbcde", k=rng.randint(6, 10)))


MACHINES = firmware(
    "state-machine",
    (
        "A state machine starts in state 0. Its transitions: $machine; $other. Read a line of events, one letter each.",
        "From state 0 on, follow the events (letters on the input line) through this machine: $machine, and $other.",
        "Letters on a line are events for firmware with these transitions between numbered states: $machine. Begin "
        "with 0; $other.",
    ),
    {"machine": {name: _machine(rows) for name, rows in _MACHINES.items()}, "other": _OTHER, "event": _EVENTS},
    ("the $event", "these: $event", "$event"),
    _events,
    setup="state, known = 0, $known",
    python="after = known.get((state, $x), $other)\n$ys.append($note)\nstate = after",
    items=LETTERS,
    state="uint8_t state = 0;",
    step="$remember\nswitch (state) {\n$cases\ndefault:\n    state = 0;\n    break;\n}\nemit($note);",
    skip=lambda machine, other, event, report: (
        (event == "moves" and report not in FLAG_REPORTS) or (event != "moves" and report in ("min", "max"))
    ),
)

_FIELDS = {
    "mode": piece("bits 0 to 2 (the mode)", "the three lowest bits, 2..0,", shift="0", mask="0x7"),
    "channel": piece("bits 4 to 7 (the channel)", "the four bits from 7 down to 4", shift="4", mask="0xF"),
    "gain": piece("bits 8 to 10 (the gain)", "the field of width 3 that begins at bit 8", shift="8", mask="0x7"),
    "count": piece("bits 11 to 15 (the counter)", "the upper five bits, 15..11,", shift="11", mask="0x1F"),
}
_WRITES = {
    "get": piece("Take the value of $field", "Shift and mask to get the number in $field", made="$x >> $shift & $mask"),
    "set": piece("Set all of $field to 1", "Turn on $field", made="$x | $mask << $shift"),
    "clear": piece("Set all of $field to 0", "Turn off $field", made="$x & ~($mask << $shift)"),
    "toggle": piece("Invert $field", "Flip 0 and 1 in $field", made="$x ^ $mask << $shift"),
    "two": piece(
        "Write the value 2 into $field",
        "Replace the number in $field by 2",
        made="($x & ~($mask << $shift)) | 2 << $shift"
    ),
    "next": piece(
        "Add 1 to the value of $field, which wraps around to 0 within its bits",
        "Count up the number in $field and keep it inside its width",
        made="($x & ~($mask << $shift)) | (($x >> $shift) + 1 & $mask) << $shift",
        c_made="($x & ~($mask << $shift)) | ((($x >> $shift) + 1) & $mask) << $shift",
    ),
}  # fmt: skip


def _registers(rng: random.Random) -> str:
    return line([format(rng.randint(0, 0xFFFF), "04X") for _ in range(rng.randint(3, 5))])


FIELDS = firmware(
    "bit-fields",
    (
        "Read a line of 16-bit registers in hexadecimal; bit 0 is the lowest. $write, and leave no other bit changed.",
        "The input is one line of register values, each with four hexadecimal digits. $write; bits count from 0.",
        "Hexadecimal words of 16 bits, read from a line, are copies of a control register. $write (bit 0 has the value "
        "1).",
    ),
    {"field": _FIELDS, "write": _WRITES},
    ("the results, in decimal", "all of what you get as decimal numbers", "these, in decimal"),
    _registers,
    python="$ys.append($made)",
    items=HEX_NUMBERS,
    state="uint32_t made = 0;",
    step="made = $made;\nemit((int32_t)made);",
    reports={**REPORTS, "xor": XOR, "hex": HEX},
    skip=lambda field, write, report: report == "odd" and write != "get",
)

FAMILIES: tuple[Family, ...] = (RING, POOL, MACHINES, FIELDS)
