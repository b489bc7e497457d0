"""The symbols of an object file, and whether they are a C program's own to have.

An assembler wrote the file from untrusted text, so nothing in it is believed: whatever does not fit is an error. A
program can have symbol tables of its own, whose names are anywhere in the file and overlap: so of each only the
beginning is read. This file is loaded by path in an interpreter without the package, so it imports the standard library
only.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

_SYMBOL_TABLE, _SECTION_BYTES, _SYMBOL_BYTES = 2, 64, 24
MOST_SYMBOLS, MOST_NAME_BYTES = 1 << 17, 1000
# Names of the sanitizers. A program that defines one would replace it, or hear of reports before we do.
_THEIRS = re.compile(rb"_*+(?:asan|ubsan|lsan|tsan|sanitizer|interceptor|interception|sancov)_")
# Those that the compiler makes a program use; others have to do with reports, or hide memory from checks.
_USED = re.compile(
    rb"__ubsan_handle_\w+"
    rb"|__asan_(?:init|version_mismatch_check_v\d+|handle_no_return|option_detect_stack_use_after_return"
    rb"|(?:report|exp|load|store|stack_malloc|stack_free)_?\w*|(?:un)?register_\w+"
    rb"|(?:un)?poison_stack_memory|allocas?_(?:un)?poison|(?:before|after)_dynamic_init|mem(?:cpy|set|move))"
)


# Functions by which a program changes what the sanitizers watch with: it looks theirs up by name, maps memory over
# their records, or replaces their handlers of signals. C11 has none of them. The C library has more names for each.
_LOW_LEVEL = re.compile(
    rb"_*+(?:libc_)?(?:dlm?open|dlv?sym|dlinfo|dl_\w++|rtld_\w++|syscall|mmap(?:64)?|munmap|mremap|(?:pkey_)?mprotect"
    rb"|(?:posix_|process_)?madvise|remap_file_pages|s?brk|(?:arch_)?prctl|sigvec)|_++(?:libc_)?sigaction"
)


def can_hide_faults(file: bytes) -> bool:
    """Whether the program uses a function that could hide its faults; errors as `forbidden_symbol`."""
    names = (name.partition(b"@")[0] for name, is_defined in _symbols(file) if not is_defined)  # without a version
    return any(map(_LOW_LEVEL.fullmatch, names))


def forbidden_symbol(file: bytes) -> str:
    """The first name that the program must not define or use, else an empty string.

    Raises:
        ValueError: it is not an object file, or has far too many symbols.
    """
    for name, is_defined in _symbols(file):
        if _THEIRS.match(name) and (is_defined or not _USED.fullmatch(name)):
            return name.decode("utf-8", "replace")
    return ""


def _symbols(file: bytes) -> Iterator[tuple[bytes, bool]]:
    """Each name in the symbol tables, or its first `MOST_NAME_BYTES`, and whether the file defines it."""
    try:
        if file[:6] != b"\x7fELF\x02\x01":  # 64 bits, low byte first
            raise ValueError("not an ELF file")
        start, size, count = *struct.unpack_from("<Q", file, 0x28), *struct.unpack_from("<HH", file, 0x3A)
        if size != _SECTION_BYTES:
            raise ValueError("unknown sections")
        if count == 0:  # more sections than fit: the first one has their number
            count = struct.unpack_from("<Q", file, start + 0x20)[0]
        sections = [struct.unpack_from("<IIQQQQIIQQ", file, start + size * number) for number in range(count)]
        tables = [each for each in sections if each[1] == _SYMBOL_TABLE]
        if sum(each[5] for each in tables) > MOST_SYMBOLS * _SYMBOL_BYTES:
            raise ValueError("too many symbols")
        for _, _, _, _, offset, length, names, *_ in tables:
            text = sections[names][4]
            for place in range(offset, offset + length, _SYMBOL_BYTES):
                name, _, _, section = struct.unpack_from("<IBBH", file, place)
                yield file[text + name : text + name + MOST_NAME_BYTES].partition(b"\0")[0], section != 0
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError(str(error)) from None
