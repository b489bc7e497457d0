"""What can be set about the server, and its fixed limits."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path

from securecoderl_edge.config import setting
from securecoderl_edge.errors import UsageError
from securecoderl_edge.runtimes.opening import RuntimeSettings

KEY_VARIABLE = "SCE_API_KEY"
# A shorter key can be guessed.
_SHORTEST_KEY = 16
MAX_BODY_BYTES = 1 << 20
MAX_TESTS = 20
MAX_REPAIRS = 5
# Of one request to /v1/score.
MAX_PROGRAMS = 256
# Of the time limit of a problem in such a request.
MAX_SECONDS = 10.0
# Of the characters of an assertion in such a request, and of all of one for a completion.
LONGEST_ASSERTION = 1 << 14
# Of the clients that get status 429.
RETRY_SECONDS = 1
# Of stop strings, and the characters of each: editors send more than the four of OpenAI.
MAX_STOPS, LONGEST_STOP = 32, 200
# Of one request: alternatives at each token, samples of all prompts, other files next to a hole, fields to be shown.
MAX_ALTERNATIVES, MAX_CHOICES, MAX_FILES, MAX_SHOWN = 20, 128, 64, 64
# Of one request with log-probabilities: entries of the completions; samples and alternatives where prompts have them.
MAX_ENTRIES, MAX_ECHOED, MAX_ECHOED_ALTERNATIVES = 1 << 18, 16, 5


# As browsers send it: no path, no wildcard. Editors have schemes of their own.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[A-Za-z0-9._\[\]:-]+")
# No browser sends these, so they would allow nothing.
_UNSENT = re.compile(r"https?://.*[A-Z].*|http://.*:80|https://.*:443")


@dataclass(frozen=True)
class ServeSettings(RuntimeSettings):
    """The address of the server, the limits of requests, and how the model is computed."""

    reward: bool = setting(False, "Score programs at /v1/score, for trainers; without --model, do nothing else.")
    problems: str | None = setting(
        None,
        "With --reward: problems that requests may name by id: JSONL, starter[:SPLIT], mbpp[:SPLIT].",
        metavar="FILE",
    )
    host: str = setting(
        "127.0.0.1",
        f"Address to listen on. One other than this machine's own needs a key in {KEY_VARIABLE}.",
        metavar="IP",
    )
    port: int = setting(8080, "Port to listen on; 0: a free one.", minimum=0, maximum=65535, metavar="N")
    hostnames: tuple[str, ...] = setting(
        (), "Names under which clients may reach the server, in addition to IP addresses and localhost.", metavar="LIST"
    )
    allow_origin: tuple[str, ...] = setting(
        (), "Origins of other web pages that may use the server, such as http://localhost:3000.", metavar="LIST"
    )
    api_key_file: str | None = setting(
        None, f"File with the key that clients must send.  [default: the variable {KEY_VARIABLE}]", metavar="FILE"
    )
    parallel: int | None = setting(
        None,
        "Samples decoded together; fewer if memory is short.  [default: 32 of a file, else 64]",
        minimum=1,
        metavar="N",
    )
    context: int = setting(
        2048,
        "Maximum number of tokens of a prompt and its completion; at most that of the model.",
        minimum=2,
        metavar="N",
    )
    max_tokens: int = setting(1024, "Maximum number of tokens per completion.", minimum=1, metavar="N")
    max_samples: int = setting(16, "Maximum number of samples per request (n, best_of).", minimum=1, metavar="N")
    max_requests: int = setting(
        64,
        "Requests in progress, waiting ones included; further ones get status 429.",
        minimum=1,
        maximum=512,
        metavar="N",
    )
    timeout: float = setting(
        120.0, "Wall time per request in seconds; it then ends with status 504.", minimum=1, metavar="S"
    )

    def __post_init__(self) -> None:
        if self.problems is not None and not self.reward:
            raise UsageError("--problems needs --reward")
        for origin in self.allow_origin:
            if not _ORIGIN.fullmatch(origin):
                raise UsageError(
                    f"--allow-origin {origin}: expected a scheme, a name and perhaps a port, such as http://localhost:3000"
                )
            if _UNSENT.fullmatch(origin):
                raise UsageError(
                    f"--allow-origin {origin}: browsers send names in lower case, and no port where it is the usual one"
                )
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            raise UsageError(f"--host {self.host}: expected an IP address, such as 127.0.0.1, ::1 or 0.0.0.0") from None

    def api_key(self) -> str | None:
        """The key that clients must send, from the file or the variable; ``ps`` would show a command line.

        Raises:
            UsageError: the key is missing although the address needs one, is too short, or cannot be read.
        """
        where, key = KEY_VARIABLE, os.environ.get(KEY_VARIABLE, "")
        if self.api_key_file is not None:
            where = self.api_key_file
            try:
                key = Path(where).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"--api-key-file {where}: cannot read it ({error})") from None
        key = key.strip()
        if not key and self.api_key_file is None:
            if ipaddress.ip_address(self.host).is_loopback:  # only this machine can reach it
                return None
            raise UsageError(f"--host {self.host} can be reached from other machines. Set a key in {KEY_VARIABLE}")
        if len(key) < _SHORTEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
            raise UsageError(f"{where}: expected a key of at least {_SHORTEST_KEY} ASCII characters without spaces")
        return key
