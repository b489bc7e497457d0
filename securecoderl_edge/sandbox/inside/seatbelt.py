"""The macOS level: a Seatbelt profile, installed with ``sandbox_init``, the call behind ``sandbox-exec``.

Meant to cover: a process may read the Python library and use the descriptors that it has; no other files, no
writing, no network, no children, no signals to others. Apple calls the interface deprecated, and its profile
language is documented by examples only. **None of this has been run on a Mac**: the profile was written on
Linux, and `sce doctor`, which runs malicious programs against it, is what tells.

This file is loaded by path in an interpreter without the package, so it imports the standard library only.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence

READABLE = ("/usr/lib", "/usr/share/zoneinfo", "/System/Library", "/private/var/db/timezone")
PACKAGES = "/(site-packages|dist-packages|ensurepip/_bundled)(/|$)"  # a later rule wins
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


def profile(library: Sequence[str]) -> str:
    """The profile's text; reading is allowed below ``library`` and where macOS keeps its own libraries.

    Installed packages are left out.
    """
    # A JSON string is a string of the profile language: quotes and backslashes are escaped alike.
    folders = " ".join(f"(subpath {json.dumps(path)})" for path in (*library, *READABLE))
    devices = " ".join(f"(literal {json.dumps(path)})" for path in DEVICES)
    return "\n".join(
        (
            "(version 1)",
            "(deny default)",
            f"(allow file-read* file-map-executable {folders})",
            f"(allow file-read* {devices})",
            f'(deny file-read* (regex #"{PACKAGES}"))',
            "(allow file-read-metadata)",
            "(allow sysctl-read)",
            "(allow signal (target self))",
            "(deny process-fork)",
            "(deny process-exec)",
            "(deny network*)",
            "(deny file-write*)",
        )
    )


def install(text: str) -> None:
    """Put the calling process under the profile, for good.

    Raises:
        OSError: the system refuses it, or has no ``sandbox_init``.
    """
    try:
        initialize = ctypes.CDLL("/usr/lib/libsandbox.dylib").sandbox_init
    except (OSError, AttributeError) as error:
        raise OSError(f"sandbox_init: {error}") from None
    message = ctypes.c_char_p()
    initialize.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_char_p)]
    if initialize(text.encode(), 0, ctypes.byref(message)) != 0:
        raise OSError(f"sandbox_init: {(message.value or b'refused').decode('utf-8', 'replace')}")
