"""Is `sce serve` as fast as llama-cpp-python's own server, on one GGUF file, with the same requests?

    pip install --target PEER "llama-cpp-python[server]"
    python benchmarks/serve_peer.py --model qwen-0.5b.gguf --packages PEER --json benchmarks/results/serve-peer.json

On a processor with AMX the stock build of llama.cpp ends with an illegal instruction at the first quantized prompt.
There build the other one without AMX: CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX512=ON -DGGML_AVX512_VNNI=ON ...".
Both servers run at once, with two threads each, and are asked in turns. Chat: each of --requests statements of MBPP is
asked once, by one client and by eight; tokens per second count what the server says that it made. Filling in: a file
is cut at its middle, and asked for on /v1/completions with a suffix; the first token is the first text of the stream.
No two such requests begin alike, and each is asked once per server, so no cache helps.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from record import publish
from serve_load import server

from securecoderl_edge.problems.sources import load_problems

CLIENTS = (1, 8)
HALF_OF_FILE = 1200  # characters before and after the hole: 600 to 800 tokens together


def main() -> None:
    """Start both servers, ask them in turns, publish."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="GGUF file")
    parser.add_argument("--packages", type=Path, help="folder with the packages of the other server (else installed)")
    parser.add_argument("--requests", type=int, default=8, help="chats per round")
    parser.add_argument("--fills", type=int, default=6, help="holes to fill in")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    statements = [problem.statement for problem in load_problems("mbpp:test")[: arguments.requests]]
    holes = fill_requests(arguments.fills)
    chats: dict[str, list[float]] = {f"{name}_{clients}": [] for name in ("sce", "peer") for clients in CLIENTS}
    firsts: dict[str, list[float]] = {"sce": [], "peer": []}
    with (
        server(str(arguments.model), max(CLIENTS), arguments.threads) as (_, ours),
        peer(arguments.model, arguments.threads, arguments.packages) as theirs,
    ):
        ports = {"sce": ours, "peer": theirs}
        for port in ports.values():
            chat(port, statements[0], 4)
        for _ in range(arguments.rounds):
            for clients in CLIENTS:
                for name, port in ports.items():
                    chats[f"{name}_{clients}"].append(speed(port, statements, clients, arguments.max_tokens))
        for hole in holes:
            for name, port in ports.items():
                firsts[name].append(first_text_seconds(port, hole))
    results = {
        "model": arguments.model.name,
        "threads": arguments.threads,
        "max_tokens": arguments.max_tokens,
        "tokens_per_s": {name: [round(each, 1) for each in found] for name, found in chats.items()},
        "ratio_to_peer": {
            str(clients): round(
                median(a / b for a, b in zip(chats[f"sce_{clients}"], chats[f"peer_{clients}"], strict=True)), 2
            )
            for clients in CLIENTS
        },
        "first_token_s": {name: [round(each, 3) for each in found] for name, found in firsts.items()},
        "first_token_later_s": round(median(a - b for a, b in zip(firsts["sce"], firsts["peer"], strict=True)), 3),
    }
    sys.stdout.write(json.dumps(results, indent=1) + "\n")
    publish(results, arguments.json)


@contextmanager
def peer(model: Path, threads: int, packages: Path | None) -> Iterator[int]:
    """llama-cpp-python's server as a process of its own: its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    command = [sys.executable, "-m", "llama_cpp.server", "--model", str(model), "--port", str(port)]
    command += ["--n_threads", str(threads), "--n_threads_batch", str(threads), "--n_ctx", "2048"]
    command += ["--interrupt_requests", "False", "--verbose", "False"]
    environment = {**os.environ, **({"PYTHONPATH": str(packages.resolve())} if packages else {})}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            try:
                request(port, "GET", "/v1/models").close()
                break
            except OSError:
                time.sleep(0.2)
        else:
            raise SystemExit('the other server did not start: pip install "llama-cpp-python[server]"')
        yield port
    finally:
        process.kill()
        process.wait()


def request(port: int, method: str, path: str, body: dict[str, Any] | None = None) -> http.client.HTTPResponse:
    """The beginning of an answer; closing it ends the connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"port {port}: status {response.status}: {response.read().decode()}")
    return response


def chat(port: int, statement: str, max_tokens: int) -> int:
    """Ask one question; the number of tokens of the answer."""
    body = {"messages": [{"role": "user", "content": statement}], "temperature": 0, "max_tokens": max_tokens}
    with request(port, "POST", "/v1/chat/completions", body) as response:
        return int(json.load(response)["usage"]["completion_tokens"])


def speed(port: int, statements: list[str], clients: int, max_tokens: int) -> float:
    """Tokens per second of all questions, asked by some clients at a time."""
    started = time.perf_counter()
    with ThreadPoolExecutor(clients) as threads:
        tokens = sum(threads.map(lambda each: chat(port, each, max_tokens), statements))
    return tokens / (time.perf_counter() - started)


def fill_requests(number: int) -> list[dict[str, Any]]:
    """Requests to fill the middle of files of the standard library."""
    files = (path.read_text(encoding="utf-8") for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")))
    texts = [text for text in files if len(text) > 4 * HALF_OF_FILE][:number]
    return [
        {
            "prompt": text[:HALF_OF_FILE], "suffix": text[HALF_OF_FILE + 100 : 2 * HALF_OF_FILE + 100],
            "max_tokens": 16, "temperature": 0, "stream": True,
        }
        for text in texts
    ]  # fmt: skip


def first_text_seconds(port: int, body: dict[str, Any]) -> float:
    """Seconds until the first text of a stream."""
    started = time.perf_counter()
    with request(port, "POST", "/v1/completions", body) as response:
        for line in response:
            if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0]["text"]:
                return time.perf_counter() - started
    raise SystemExit(f"port {port}: a stream without text")


if __name__ == "__main__":
    main()
