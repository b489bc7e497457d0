"""Load test of `sce serve`: no lost or mixed-up answer, flat memory, latencies, and the gain from shared batches.

    python benchmarks/serve_load.py --json benchmarks/results/serve-load.json

A server of its own and clients on the same machine, 50 for five minutes. First one client asks each request alone;
its answers are the expected ones, and requests whose answer is not unique are left out. Then 1 and 8 clients show what
continuous batching gains, and at last all clients ask at random, every second time as a stream. ``right`` answers have
the expected text, which proves whose they are. ``mixed_up`` ones have the text or the seed of another request.
``rounded`` ones have the own seed and a text of their own: batches of other shapes round differently, which may change
a token. Requests answered with 429 are ``refused``, those without a complete answer ``lost``. Memory is the resident
size of the server and its child processes, the median of the second and of the last fifth of the time.
``without_server`` are the same prompts in the runtime alone, one at a time and eight at once: what shared batches can
gain at most.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from record import publish

from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.runtimes.gguf.runtime import GgufRuntime
from securecoderl_edge.runtimes.protocol import Sampling
from securecoderl_edge.system.processes import module_command

PATH, SEED = "/v1/chat/completions", 42
GOOD = {"right", "rounded", "refused"}


@dataclass(frozen=True)
class Reply:
    """What came back; ``status`` is 0 if the answer is missing or incomplete."""

    status: int
    text: str = ""
    seed: int = -1
    tokens: int = 0


@dataclass
class Load:
    """What clients saw: outcomes, wall seconds of answers, tokens."""

    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    tokens: int = 0
    wall: float = 0.0

    def to_record(self) -> dict[str, Any]:
        """For the result file."""
        ordered = sorted(self.seconds) or [0.0]
        return {
            **dict(self.outcomes),
            "p50_s": round(statistics.median(ordered), 3),
            "p99_s": round(ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 3),
            "tokens_per_s": round(self.tokens / self.wall, 1),
            "requests_per_s": round(len(self.seconds) / self.wall, 2),
        }


class Client:
    """Asks one server, over a new connection each time."""

    def __init__(self, port: int, problems: Sequence[Problem], max_tokens: int) -> None:
        self._port, self._problems, self._max_tokens = port, problems, max_tokens

    def ask(self, place: int, is_stream: bool) -> Reply:
        """The answer to the request number ``place``."""
        try:
            return self._asked(place, is_stream)
        except (OSError, http.client.HTTPException, ValueError):
            return Reply(0)

    def _asked(self, place: int, is_stream: bool) -> Reply:
        problem = self._problems[place]
        body = {
            "messages": [{"role": "user", "content": problem.statement}],
            "tests": [{"input": test.input, "output": test.output} for test in problem.tests],
            "seed": SEED + place,
            "max_tokens": self._max_tokens,
            **({"stream": True, "stream_options": {"include_usage": True}} if is_stream else {}),
        }
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=300)
        try:
            connection.request("POST", PATH, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read().decode()
        finally:
            connection.close()
        if response.status != 200:
            return Reply(response.status)
        if not is_stream:
            record = json.loads(content)
            (choice,) = record["choices"]
            text, seed = choice["message"]["content"], choice["sce"]["seed"]
            return Reply(200, text, seed, record["usage"]["completion_tokens"])
        *events, end = [part.removeprefix("data: ") for part in content.split("\n\n") if part]
        if end != "[DONE]":
            raise ValueError("the stream has no end")
        *records, usage = [json.loads(event) for event in events]
        if len({record["id"] for record in (*records, usage)}) != 1:
            raise ValueError("the stream has parts of another one")
        choices = [choice for record in records for choice in record["choices"]]
        text = "".join(choice["delta"].get("content", "") for choice in choices)
        return Reply(200, text, choices[-1]["sce"]["seed"], usage["usage"]["completion_tokens"])


def put_under_load(client: Client, expected: Mapping[int, str], clients: int, seconds: float) -> Load:
    """Let clients ask at random until the time is over; those that are refused wait a little."""
    load, lock, started = Load(), threading.Lock(), time.monotonic()

    def work(number: int) -> None:
        rng, places = random.Random(number), list(expected)
        while time.monotonic() - started < seconds:
            place, begun = rng.choice(places), time.monotonic()
            reply = client.ask(place, rng.random() < 0.5)
            taken = time.monotonic() - begun
            with lock:
                load.outcomes[outcome_of(reply, place, expected)] += 1
                load.tokens += reply.tokens
                if reply.status == 200:
                    load.seconds.append(taken)
            if reply.status == 429:
                time.sleep(0.1)

    with ThreadPoolExecutor(clients) as threads:
        list(threads.map(work, range(clients)))
    load.wall = time.monotonic() - started
    return load


def outcome_of(reply: Reply, place: int, expected: Mapping[int, str]) -> str:
    """One word for an answer."""
    if reply.status != 200:
        return {0: "lost", 429: "refused"}.get(reply.status, f"status_{reply.status}")
    if reply.seed == SEED + place and reply.text == expected[place]:
        return "right"
    return "mixed_up" if reply.seed != SEED + place or reply.text in expected.values() else "rounded"


def expected_answers(client: Client, count: int) -> dict[int, str]:
    """The answers to requests that are asked one after the other, by number, without those that occur twice.

    Raises:
        SystemExit: a request fails, or fewer than two answers are left.
    """
    replies = [client.ask(place, is_stream=False) for place in range(count)]
    texts = Counter(reply.text for reply in replies)
    expected = {place: reply.text for place, reply in enumerate(replies) if texts[reply.text] == 1}
    if len(expected) < 2 or any(reply.status != 200 for reply in replies):
        raise SystemExit(f"cannot begin: {len(expected)} of {count} requests have an answer that no other one has")
    return expected


@contextmanager
def server(model: str, clients: int, threads: int | None) -> Iterator[tuple[int, int]]:
    """A server as a process of its own: its process id and its port."""
    command = [*module_command("securecoderl_edge"), "serve", "--model", model, "--port", "0"]
    command += ["--max-requests", str(min(512, clients + 8)), "--timeout", "300"]
    command += ["--threads", str(threads)] if threads else []
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        port = None
        for line in process.stderr:
            if found := re.search(r" at http://127\.0\.0\.1:(\d+);", line):
                port = int(found[1])
                break
        if port is None:
            raise SystemExit("the server did not start")
        yield process.pid, port
        process.send_signal(signal.SIGINT)
        process.wait(60)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@contextmanager
def watched_memory(pid: int, every: float) -> Iterator[list[int]]:
    """Resident bytes of a process and its children, taken regularly."""
    taken: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(every):
            taken.append(resident_bytes(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield taken
    finally:
        over.set()
        thread.join()


def resident_bytes(pid: int) -> int:
    """Of a process and all below it; those that end meanwhile count 0."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        threads = list(Path(f"/proc/{pid}/task").iterdir())  # each has the children that it started
    except OSError:
        return 0
    children: list[str] = []
    for thread in threads:
        with suppress(OSError):
            children += (thread / "children").read_text(encoding="ascii").split()
    own = re.search(r"VmRSS:\s+(\d+) kB", status)
    return (int(own[1]) * 1024 if own else 0) + sum(resident_bytes(int(child)) for child in children)


def memory_of(taken: Sequence[int]) -> dict[str, float]:
    """Median of the second and of the last fifth, in MiB, and how much the last one is above."""
    fifth = max(1, len(taken) // 5)
    early, late = (statistics.median(part or [0]) / 2**20 for part in (taken[fifth : 2 * fifth], taken[-fifth:]))
    return {"early_mib": round(early, 1), "late_mib": round(late, 1), "growth_mib": round(late - early, 1)}


def decode_alone(model: str, threads: int | None, problems: Sequence[Problem], max_tokens: int) -> dict[str, float]:
    """Tokens per second of the runtime for a GGUF file, without a server, one sequence at a time and eight at once."""
    speeds = {}
    prompts = [problem.statement for problem in problems]
    with closing(GgufRuntime(Path(model), threads=threads, parallel=8)) as runtime:
        for rows in (1, 8):
            parts = [prompts[start : start + rows] for start in range(0, len(prompts), rows)]
            runtime.generate(parts[0], 1, Sampling(0.8, 4))
            started = time.monotonic()
            answers = [row for part in parts for row in runtime.generate(part, 1, Sampling(0.8, max_tokens))]
            tokens = sum(len(answer.token_ids) for row in answers for answer in row)
            speeds[f"tokens_per_s_{rows}"] = round(tokens / (time.monotonic() - started), 1)
    return {**speeds, "speedup_of_eight": round(speeds["tokens_per_s_8"] / speeds["tokens_per_s_1"], 2)}


def main() -> None:
    """Start a server, ask, publish; exit with 1 if an answer was lost, mixed up or an error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="nano", help="as for sce serve")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=300, help="of the full load")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, help="CPU threads of the model")
    parser.add_argument("--quick", action="store_true", help="a few seconds: does it work?")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    count, clients, seconds, short = (4, 6, 3.0, 1.0) if arguments.quick else (
        32, arguments.clients, arguments.seconds, 60.0
    )  # fmt: skip
    problems = load_problems("starter:eval")[:count]
    with server(arguments.model, clients, arguments.threads) as (pid, port):
        client = Client(port, problems, arguments.max_tokens)
        expected = expected_answers(client, count)
        alone = put_under_load(client, expected, 1, short)
        eight = put_under_load(client, expected, 8, short)
        with watched_memory(pid, seconds / 50) as memory:
            load = put_under_load(client, expected, clients, seconds)
    is_gguf = Path(arguments.model).is_file()
    alone_speeds = decode_alone(arguments.model, arguments.threads, problems, arguments.max_tokens) if is_gguf else {}
    results: dict[str, Any] = {
        "model": arguments.model,
        "max_tokens": arguments.max_tokens,
        "requests": len(expected),
        "one_client": alone.to_record(),
        "eight_clients": eight.to_record(),
        "speedup_of_eight": round(eight.tokens / eight.wall / (alone.tokens / alone.wall), 2),
        "without_server": alone_speeds,
        "load": {"clients": clients, "seconds": round(load.wall, 1), **load.to_record()},
        "memory": memory_of(memory),
    }
    for name in ("one_client", "eight_clients", "load"):
        sys.stdout.write(f"{name:14} {results[name]}\n")
    sys.stdout.write(f"without server: {alone_speeds}\n")
    sys.stdout.write(f"speedup of eight clients: {results['speedup_of_eight']}; memory: {results['memory']}\n")
    publish(results, arguments.json)
    sys.exit(any(set(each.outcomes) - GOOD for each in (alone, eight, load)))


if __name__ == "__main__":
    main()
