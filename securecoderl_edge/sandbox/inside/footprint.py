"""The footprint of a program for ARM: sizes from its object file, stack and calls from gcc's assembly.

Stack and recursion are those of the program's own functions: the C library is not looked at. gcc tells where a function
moves its stack pointer (`.cfi_def_cfa_offset`). A call through a pointer, and a call of a function that takes one
(`CALLBACKS`), may reach every function whose address is used.

Covers what gcc makes of C. Does not cover machine code that a program brings as data or in the labels of its
declarations: such a program can hide calls and frames, though not its size.

Tools wrote these files from untrusted text, so whatever does not fit is an error. This file is loaded by path in an
interpreter without the package, so it imports the standard library only.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

_SYMBOL_TABLE, _NO_BITS, _IN_MEMORY, _SECTION_BYTES, _SYMBOL_BYTES = 2, 8, 2, 40, 16
MOST_SYMBOLS, MOST_NAME_BYTES = 1 << 17, 1000  # as in `elf`, for the same reason
_LONGEST = 64  # of the names of libraries; for a longer one the patterns below could take quadratic time
_GLOBAL, _WEAK, _FUNCTION = 1, 2, 2
# Functions of the C library, by their names in <stdlib.h> and inside: with underscores, and for a given state (`_r`).
HEAP = re.compile(
    r"_*(?:(?:m|c|re|v|pv)alloc(?:array|f)?|free|aligned_alloc|(?:posix_)?memalign|sbrk|strn?dup|wcsdup|v?asn?i?printf"
    r"|getline|getdelim|open_w?memstream|fmemopen|f(?:d|re)?open|fopencookie|funopen|tempnam|tmpfile|argz_\w+|envz_\w+"
    r"|tsearch|hcreate|hsearch|setenv|Balloc|emutls_get_address)(?:_r)?"
    r"|__(?:[dis]2b|multadd|multiply|pow5mult|lshift|mdiff)"
)
# Routines of libgcc (EABI and older names); functions of <math.h>, <complex.h> and <stdlib.h>, and inside these.
_MATH = (
    "acosh? asinh? atanh? atan2 atof cbrt ceil copysign cosh? difftime drem erfc? exp exp2 exp10 expm1 fabs fdim "
    "finite floor fma fmax fmin fmod frexp gamma(?:_r)? hypot ilogb infinity is(?:inf|nan) j[01n] ldexp lgamma ll?rint "
    "ll?round log log10 log1p log2 logb modf nan nearbyint nextafter nexttoward pow pow10 remainder remquo rint round "
    "scalb(?:l?n)? significand sinh? sincos sqrt tanh? tgamma trunc y[01n] "
    "c(?:abs|arg|exp|imag|log(?:10)?|onj|pow|proj|real|sqrt|a?(?:cos|sin|tan)h?)"
)
_LIBGCC = "add|sub|mul|div|neg|eq|ne|lt|le|gt|ge|cmp|unord|fix|float|extend|trunc|powi"
FLOAT = re.compile(
    rf"__aeabi_(?:c?[fd]\w+|u?[il]2[fd]|h2f\w*)|__(?:{_LIBGCC})\w*[sdt][fc]\w{{0,3}}|__gnu_\w*(?:[sd]f|[hdf]2[hdf])\w*"
    rf"|(?:{_MATH.replace(' ', '|')})[fl]?(?:_r)?|__(?:ieee754|kernel|math)_\w+"
    r"|_*(?:str|wcs)to(?:[df]|ld)(?:_[lr])?|_*[defg]cvt\w*|_*[de]rand48(?:_r)?|_dtoa_r"
    r"|__(?:fpclassify|isinf|isnan|signbit)[dfl]|__(?:b2d|d2b|ulp|ratio|exp10|ten_mul|adjust)|_(?:cchsh|ctans|redupi)[fl]?"
)
# Functions that call a pointer that they are given.
CALLBACKS = re.compile(
    r"_*(?:qsort|bsearch|l(?:find|search)|t(?:search|find|delete|walk|destroy)|atexit|at_quick_exit|on_exit|cxa_atexit"
    r"|signal|raise|scandir|n?ftw|glob|fopencookie|funopen|call_via_\w+|Unwind_\w+)(?:_[rs])?"
)

# Longer assembly would take longer to read than gcc takes for it, and no program that fits on a board has it.
MOST_CHARACTERS = 4 << 20
_ANY = "*"  # what a pointer may lead to
_NAME = re.compile(r"[^\s,()\[\]{}:+#=\"]+")
_OFFSET = re.compile(r"\.cfi_def_cfa_offset (\d+)")
_DYNAMIC = (".cfi_def_cfa_register", ".cfi_def_cfa ")
_TEXTS = (".ascii", ".asciz", ".string", ".file", ".loc", ".section", ".ident")
_MENTIONS = (".type", ".size", ".global", ".globl", ".weak", ".thumb_func", ".local", ".comm", ".hidden")


class _Function:
    """A function: the bytes of its frame, whether it makes room as it runs, and what it calls."""

    def __init__(self) -> None:
        self.stack, self.is_dynamic = 0, False
        self.calls: set[str] = set()


def footprint(assembly: str, file: bytes) -> dict[str, object]:
    """The fields of `Footprint`, of a program as assembly and as object file.

    Raises:
        ValueError: not an object file for ARM, or too much assembly, or far too many symbols.
    """
    if len(assembly) > MOST_CHARACTERS:
        raise ValueError(f"more than {MOST_CHARACTERS >> 20} MiB of assembly")
    code, symbols = _object(file)
    used = [name for name, is_defined, _ in symbols if not is_defined and len(name) <= _LONGEST]
    try:
        is_recursive, stack = _deepest(_functions(assembly))
    except IndexError:
        raise ValueError("unknown assembly") from None
    return {
        "code_bytes": code,
        "stack_bytes": stack,
        "heap": any(map(HEAP.fullmatch, used)),
        "float": any(map(FLOAT.fullmatch, used)),
        "recursion": is_recursive,
    }


def defines(file: bytes, function: str) -> bool:
    """Whether an object file has a function of this name that other files can call; errors as `footprint`."""
    return (function, True, True) in _object(file)[1]


def _object(file: bytes) -> tuple[int, list[tuple[str, bool, bool]]]:
    """Bytes of code and data; of each symbol its name, whether it is defined here, and as a function for all files."""
    try:
        if file[:6] != b"\x7fELF\x01\x01":  # 32 bits, low byte first
            raise ValueError("not an ELF file for ARM")
        start, size, count = *struct.unpack_from("<I", file, 0x20), *struct.unpack_from("<HH", file, 0x2E)
        if size != _SECTION_BYTES:
            raise ValueError("unknown sections")
        if count == 0:  # more sections than fit: the first one has their number
            count = struct.unpack_from("<I", file, start + 0x14)[0]
        sections = [struct.unpack_from("<10I", file, start + size * number) for number in range(count)]
        code = sum(each[5] for each in sections if each[2] & _IN_MEMORY and each[1] != _NO_BITS)
        tables = [each for each in sections if each[1] == _SYMBOL_TABLE]
        if sum(each[5] for each in tables) > MOST_SYMBOLS * _SYMBOL_BYTES:
            raise ValueError("too many symbols")
        symbols = [
            symbol
            for each in tables
            for symbol in _symbols(file[each[4] : each[4] + each[5]], file, sections[each[6]][4])
        ]
        return code, symbols
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError(str(error)) from None


def _symbols(table: bytes, file: bytes, names: int) -> Iterator[tuple[str, bool, bool]]:
    for name, _, _, info, _, section in struct.iter_unpack("<IIIBBH", table):
        start = names + name
        text = file[start : start + MOST_NAME_BYTES].partition(b"\0")[0].decode("utf-8", "replace")
        is_function = info >> 4 in (_GLOBAL, _WEAK) and info & 15 == _FUNCTION
        if text:
            yield text, section != 0, section != 0 and is_function


def _functions(assembly: str) -> dict[str, _Function]:
    """Every function of the program, and what it calls, by its name in assembly."""
    lines = [line.partition("@")[0].strip() for line in assembly.splitlines()]
    lines = [line for line in lines if not line.startswith(_TEXTS)]
    functions = {
        _NAME.findall(line)[1]: _Function() for line in lines if line.startswith(".type") and line.endswith("%function")
    }
    aliases = dict(_NAME.findall(line)[1:3] for line in lines if line.startswith((".set", ".thumb_set")))
    functions[_ANY] = _Function()
    current = _Function()
    for line in lines:
        if line.endswith(":"):
            current = functions.get(line[:-1], current)
        elif found := _OFFSET.match(line):
            current.stack = max(current.stack, int(found[1]))
        elif line.startswith(_DYNAMIC):
            current.is_dynamic = True
        elif not line.startswith((*_MENTIONS, ".set", ".thumb_set")):
            _read(line, functions, aliases, current)
    return functions


def _read(line: str, functions: dict[str, _Function], aliases: dict[str, str], current: _Function) -> None:
    """One instruction or word of data: what it calls, or whose address it uses."""
    operation, *operands = _NAME.findall(line) or [""]
    names = [aliases.get(each, each) for each in operands]
    if operation.startswith("b") and len(names) == 1:  # a branch, also as the last call of a function
        is_pointer = operation.startswith("bx") and names[0] != "lr"
        if is_pointer or operation.startswith("blx") or CALLBACKS.fullmatch(names[0]):
            current.calls.add(_ANY)
        elif names[0] in functions:
            current.calls.add(names[0])
    else:
        functions[_ANY].calls |= functions.keys() & set(names)


def _deepest(functions: dict[str, _Function]) -> tuple[bool, int | None]:
    """Whether calls have a cycle, and the bytes of the deepest chain of calls; None without a bound."""
    depth: dict[str, int] = {}
    for first in functions:
        path, waiting = [first], {first: sorted(functions[first].calls)}
        while path and first not in depth:
            name = path[-1]
            if waiting[name]:
                called = waiting[name].pop()
                if called in waiting:
                    return True, None
                if called not in depth:
                    path.append(called)
                    waiting[called] = sorted(functions[called].calls)
            else:
                own = functions[name]
                depth[name] = own.stack + max((depth[each] for each in own.calls), default=0)
                del waiting[path.pop()]
    if any(each.is_dynamic for each in functions.values()):
        return False, None
    return False, max(depth.values(), default=0)
