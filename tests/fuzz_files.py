"""Damaged copies of what `sce` reads. Each is read, or refused with a sentence; it neither hangs nor eats memory.

python tests/fuzz_files.py --minutes 10 --only gguf

Every copy is read in a child process, so that a crash of native code is a finding and not the end. Findings are
written to a folder, with what was read and how it failed.
"""

from __future__ import annotations

import argparse
import bz2
import contextlib
import gzip
import json
import lzma
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError

# Of CPU time, since a busy machine changes nothing of that, for each process; and a bound on waiting.
SECONDS, WALL_SECONDS, MEMORY_MIB = 20, 300, 1500
NUMBERS = [
    0,
    -1,
    1,
    2**15,
    2**31 - 1,
    2**31,
    2**32,
    2**63 - 1,
    2**63,
    10**30,
    0.5,
    -0.0,
    1e308,
    float("nan"),
    float("inf"),
]
TEXTS = [
    "",
    " ",
    "..",
    "../../etc/passwd",
    "/etc/passwd",
    "\0",
    "\ud800",
    "\x1b[2J",
    "<script>",
    "a" * 100_000,
    "{{",
    "{% for",
]

DEEP = "a list in a list in a list"  # stands for it until the text is written


@dataclass(frozen=True)
class WayIn:
    """One kind of thing that is read.

    Attributes:
        make: writes a valid one to an empty folder; returns the files to damage.
        read: reads what lies in a folder.
    """

    make: Callable[[Path], list[Path]]
    read: Callable[[Path], object]


# ---- problems and other data


def make_problems(folder: Path) -> list[Path]:
    from securecoderl_edge.problems.problem_file import problem_to_record
    from securecoderl_edge.problems.sources import load_problems

    records = [problem_to_record(each) for name in ("starter:eval", "starter:c-eval", "mbpp:test", "starter:firmware")
               for each in load_problems(name)[:3]]  # fmt: skip
    path = folder / "problems.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    packed = folder / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    return [path, packed]


def read_problems(folder: Path) -> None:
    from securecoderl_edge.problems.datasets.importing import import_problems
    from securecoderl_edge.problems.sources import load_problems, open_problems

    for path in folder.iterdir():
        for read in (load_problems, open_problems, lambda name: list(import_problems(Path(name)).problems)):
            with contextlib.suppress(SceError):
                read(str(path))


def make_datasets(folder: Path) -> list[Path]:
    from dataset_files import HUMANEVAL_RECORD, MBPP_RECORD

    apps = {"problem_id": 1, "question": "Say 1.", "solutions": '["print(1)"]', "difficulty": "interview", "url": "",
            "input_output": '{"inputs": ["1\\n"], "outputs": ["1\\n"]}', "starter_code": ""}  # fmt: skip
    contest = {"name": "1_A", "description": "Say 1.", "public_tests": {"input": ["1\n"], "output": ["1\n"]},
               "private_tests": {"input": [], "output": []}, "generated_tests": {"input": [], "output": []},
               "solutions": {"language": [3], "solution": ["print(1)"]}, "time_limit": {"seconds": 1, "nanos": 0},
               "source": 2, "difficulty": 7, "cf_rating": 0}  # fmt: skip
    made = []
    for name, record in (("mbpp", MBPP_RECORD), ("humaneval", HUMANEVAL_RECORD), ("apps", apps), ("contest", contest)):
        made.append(folder / f"{name}.jsonl")
        made[-1].write_text(f"{json.dumps(record)}\n" * 2)
    return made


def make_tables(folder: Path) -> list[Path]:
    import pyarrow
    import pyarrow.parquet
    from dataset_files import MBPP_RECORD

    record = {**MBPP_RECORD, "tags": ["a", None], "more": {"x": 1.5, "y": [[1], []]}, "raw": b"\x00", "none": None}
    table = pyarrow.Table.from_pylist([{**record, "task_id": number} for number in range(12)])
    words = pyarrow.array(["same", "other"] * 6).dictionary_encode()
    table = table.append_column("word", words).append_column("flag", pyarrow.array([True, None] * 6))
    for compression in ("snappy", "zstd", "gzip", "none"):
        pyarrow.parquet.write_table(table, folder / f"{compression}.parquet", compression=compression, row_group_size=5)
    for name, new in (("file", pyarrow.ipc.new_file), ("stream", pyarrow.ipc.new_stream)):
        for compression in ("zstd", None):
            options = pyarrow.ipc.IpcWriteOptions(compression=compression)
            path = str(folder / f"{name}-{compression}.arrow")
            with pyarrow.OSFile(path, "wb") as sink, new(sink, table.schema, options=options) as out:
                out.write_table(table, max_chunksize=5)
    return list(folder.iterdir())


def make_packed(folder: Path) -> list[Path]:
    from dataset_files import MBPP_RECORD

    make_problems(folder)
    text = (folder / "problems.jsonl").read_bytes()
    for path in folder.iterdir():
        path.unlink()
    cells = "task_id,text,code,test_list\n" + '1,Say 1.,print(1),"[""assert f() == 1""]"\n' * 9
    records = json.dumps([MBPP_RECORD] * 3).encode()
    for packed, pack in (("xz", lzma.compress), ("gz", gzip.compress), ("bz2", bz2.compress)):
        for name, content in (("problems.jsonl", text), ("cells.csv", cells.encode()), ("array.json", records)):
            (folder / f"{name}.{packed}").write_bytes(pack(content))
    return list(folder.iterdir())


def make_scores(folder: Path) -> list[Path]:
    from securecoderl_edge.problems.problem_file import write_problems
    from securecoderl_edge.problems.sources import load_problems

    chosen = [each for name in ("starter:eval", "mbpp:test") for each in load_problems(name)[:3]]
    write_problems(folder / "problems.jsonl", chosen)
    rows = [{"id": each.id, "sample": 0, "completion": text} for each in chosen for text in each.solutions[:1]]
    (folder / "completions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with contextlib.chdir(folder):
        assert not command(*SCORE)
    return [folder / "completions.jsonl", folder / "scores.jsonl"]


SCORE = ("score", "--problems", "problems.jsonl", "--completions", "completions.jsonl", "--out", "scores.jsonl",
         "--workers", "1")  # fmt: skip


def read_scored(folder: Path) -> None:
    from securecoderl_edge.problems.sources import load_problems
    from securecoderl_edge.scoring.score_files import read_scores, read_submissions

    problems, completions = load_problems(str(folder / "problems.jsonl")), folder / "completions.jsonl"
    valid = [problem for problem in problems if problem.solutions]
    submissions = []
    with contextlib.suppress(SceError):
        submissions = read_submissions(completions, problems, "auto")
    assert valid
    with contextlib.suppress(SceError):
        read_scores(folder / "scores.jsonl", submissions, {"credit_rule": "any", "security": "both"})


# ---- models


def make_folder(folder: Path) -> list[Path]:
    from tiny_models import build_model

    build_model(folder / "model")
    return [path for path in (folder / "model").iterdir() if path.is_file()]


def make_adapter(folder: Path) -> list[Path]:
    from export_runs import make_run
    from tiny_models import build_model

    build_model(folder / "base")
    with contextlib.chdir(folder):
        make_run(Path("run"), Path("base"))
    return [path for path in (folder / "run").rglob("*") if path.is_file()]


def make_tokenizer(folder: Path) -> list[Path]:
    from tiny_models import build_model

    build_model(folder / "model")
    names = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json")
    return [path for name in names if (path := folder / "model" / name).is_file()]


def read_tokenizer_of_folder(folder: Path) -> None:
    from securecoderl_edge.models.tokenizer import read_tokenizer

    tokenizer = read_tokenizer(folder / "model")
    for text in ("def f(x):\n    return x + 1\n", "é \ud7ff\U0001f600\0", "a" * 5000, " \n" * 2000):
        tokenizer.decode(tokenizer.encode(text)[:100])


def make_peft(folder: Path) -> list[Path]:
    from tiny_models import build_adapter, build_model

    build_model(folder / "model")
    build_adapter(folder / "adapter", folder / "model")
    return [path for path in (folder / "adapter").iterdir() if path.is_file()]


def read_peft(folder: Path) -> None:
    from securecoderl_edge.models.adapters import peft_config, read_lora_config
    from securecoderl_edge.runtimes.adapted import resolve_adapted

    for read in (read_lora_config, peft_config):
        with contextlib.suppress(SceError):
            read(folder / "adapter")
    ask_spec(resolve_adapted(str(folder / "model"), str(folder / "adapter")))


def make_gguf(folder: Path) -> list[Path]:
    from exports import export_gguf
    from tiny_models import build_model

    base = build_model(folder / "base", hidden_size=256, intermediate_size=256)
    export_gguf(base, None, "f16", folder / "model.gguf")
    shutil.rmtree(base)
    return [path for path in folder.iterdir() if path.is_file()]


def make_onnx(folder: Path) -> list[Path]:
    from exports import export_onnx
    from tiny_models import build_model

    base = build_model(folder / "base")
    export_onnx(base, None, "int8", folder / "model")
    shutil.rmtree(base)
    return [path for path in (folder / "model").iterdir() if path.is_file()]


def ask(model: Path) -> None:
    """What `sce generate` does with a model: two tokens for one prompt."""
    from securecoderl_edge.runtimes.spec import resolve_model

    ask_spec(resolve_model(str(model)))


def ask_spec(spec: Any) -> None:
    from securecoderl_edge.problems.sources import load_problems
    from securecoderl_edge.runtimes.opening import RuntimeSettings, check_runtime, opened
    from securecoderl_edge.runtimes.protocol import Sampling

    settings = RuntimeSettings(device="cpu", threads=1, sandbox="off")
    check_runtime([spec], settings)
    with opened(spec, settings) as (runtime, asking):
        prompt = asking.prompt(load_problems("starter:eval")[0])
        runtime.generate([prompt], 1, Sampling(max_tokens=2))


def read_model(folder: Path) -> None:
    ask(next(folder.glob("model*")))


def read_run(folder: Path) -> None:
    with contextlib.chdir(folder):
        ask(Path("run"))


def read_gguf(folder: Path) -> None:
    from securecoderl_edge.export.manifest import read_manifest
    from securecoderl_edge.models.gguf.header import header_strings, is_adapter

    path = folder / "model.gguf"
    for read in (is_adapter, header_strings, read_manifest):
        with contextlib.suppress(SceError):
            read(path)
    ask(path)


def read_gguf_as_base(folder: Path) -> None:
    from securecoderl_edge.models.files import base_folder
    from securecoderl_edge.models.loading import load_base
    from securecoderl_edge.models.tokenizer import read_tokenizer

    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    base = base_folder(str(folder / "model.gguf"))
    read_tokenizer(base)
    load_base(base)


# ---- runs and evaluations, as commands read them


def make_training(folder: Path) -> list[Path]:
    with contextlib.chdir(folder):
        few = ("--set", "sft.steps=1", "--set", "partial.steps=1", "--set", "ppo.batch_size=8")
        assert not command("train", "--recipe", "starter", "--phases", "sft,partial", *few, "--out", "run")
    return [path for path in (folder / "run").rglob("*") if path.is_file() and path.suffix != ".safetensors"]


def read_training(folder: Path) -> None:
    with contextlib.chdir(folder):
        command("report", "run")


def make_evaluation(folder: Path) -> list[Path]:
    with contextlib.chdir(folder):
        shared = ("bench", "nano", "--problems", "starter:eval", "--limit", "70", "--samples", "1", "--max-tokens", "3",
                  "--base-precision", "fp32",)  # fmt: skip
        for part in "12":
            assert not command(*shared, "--shard", f"{part}/2", "--out", f"parts/{part}")
    return [path for path in (folder / "parts").rglob("*") if path.is_file()]


def read_evaluation(folder: Path) -> None:
    with contextlib.chdir(folder):
        command("bench", "--merge", "parts/1", "parts/2")


def command(*words: str) -> int:
    """Run a command of `sce`; its exit code. An exception that is not a sentence is an error here."""
    from cli_runs import run_sce

    code, _, said = run_sce("--debug", *words)
    assert "a bug in sce" not in said, said
    return code


# ---- settings, requests


def make_settings(folder: Path) -> list[Path]:
    from securecoderl_edge.config import to_table, to_toml
    from securecoderl_edge.training.settings import TrainSettings

    path = folder / "settings.toml"
    path.write_text(to_toml(to_table(TrainSettings())))
    return [path]


def read_settings(folder: Path) -> None:
    from securecoderl_edge.training.recipe import resolve

    resolve(str(folder / "settings.toml"), (), {})


def make_defaults(folder: Path) -> list[Path]:
    path = folder / "securecoderl-edge" / "config.toml"
    path.parent.mkdir()
    path.write_text('[generate]\nmodel = "nano"\nmax-tokens = 512\n\n[bench]\nsamples = 2\n\n[models]\nx = "x.gguf"\n')
    return [path]


def read_defaults(folder: Path) -> None:
    os.environ["XDG_CONFIG_HOME"] = str(folder)
    for words in (("config",), ("bench", "--help"), ("generate", "--help"), ("models",)):
        command(*words)


def make_requests(folder: Path) -> list[Path]:
    message = {"role": "user", "content": "Say 1."}
    sampling = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 9, "stop": ["x"], "seed": 1, "n": 2}
    bodies = {
        "chat": {"messages": [message], "stream": True, "stream_options": {"include_usage": True}, **sampling},
        "text": {"prompt": "Say 1.", "repair": 0, "best_of": 3, **sampling},
        "infill": {"input_prefix": "def f():", "input_suffix": "f()", "input_extra": [{"filename": "a", "text": "b"}]},
        "score": {"items": [{"problem": "p", "completion": "print(1)", "program": "print(1)"}]},
    }
    for name, body in bodies.items():
        (folder / f"{name}.json").write_text(json.dumps(body))
    return list(folder.iterdir())


def read_requests(folder: Path) -> None:
    from securecoderl_edge.runtimes.extras import Abilities, InfillTokens
    from securecoderl_edge.serving.faults import Fault
    from securecoderl_edge.serving.fields import read_body
    from securecoderl_edge.serving.request_sampling import RequestLimits
    from securecoderl_edge.serving.requests import parse
    from securecoderl_edge.serving.score_service import parse_batch

    abilities = Abilities(1 << 16, InfillTokens((1,), 2, 3, 4, None, 5))
    bounds = RequestLimits("m", 64, max_samples=8, default_tokens=16, is_chat_model=True, abilities=abilities)
    for path in folder.iterdir():
        with contextlib.suppress(Fault):
            body = read_body(path.read_bytes())
            if path.stem == "score":
                parse_batch(body, {})
            else:
                parse(body, bounds, path.stem)  # type: ignore[arg-type]


WAYS = {
    "problems": WayIn(make_problems, read_problems),
    "datasets": WayIn(make_datasets, read_problems),
    "tables": WayIn(make_tables, read_problems),
    "packed": WayIn(make_packed, read_problems),
    "scores": WayIn(make_scores, read_scored),
    "folder": WayIn(make_folder, read_model),
    "run": WayIn(make_adapter, read_run),
    "tokenizer": WayIn(make_tokenizer, read_tokenizer_of_folder),
    "adapter": WayIn(make_peft, read_peft),
    "gguf": WayIn(make_gguf, read_gguf),
    "gguf-as-base": WayIn(make_gguf, read_gguf_as_base),
    "onnx": WayIn(make_onnx, read_model),
    "training": WayIn(make_training, read_training),
    "evaluation": WayIn(make_evaluation, read_evaluation),
    "settings": WayIn(make_settings, read_settings),
    "defaults": WayIn(make_defaults, read_defaults),
    "requests": WayIn(make_requests, read_requests),
}


# ---- damage


PACKED = {".xz": (lzma.compress, lzma.decompress), ".gz": (gzip.compress, gzip.decompress),
          ".bz2": (bz2.compress, bz2.decompress)}  # fmt: skip


def damaged(path: Path, rng: random.Random) -> None:
    """Change a file, as text of its format half of the time, else as bytes."""
    content = path.read_bytes()
    changed = None
    if path.suffix in PACKED and rng.random() < 0.6:  # what is in it
        pack, unpack = PACKED[path.suffix]
        path.write_bytes(unpack(content))
        inner = path.rename(path.with_suffix(""))
        damaged(inner, rng)
        inner.write_bytes(pack(inner.read_bytes()))
        inner.rename(path)
        return
    if rng.random() < 0.6:
        with contextlib.suppress(ValueError):
            changed = _changed_json(content, path.suffix, rng)
    path.write_bytes(_changed_bytes(content, rng) if changed is None else changed)


def _changed_json(content: bytes, suffix: str, rng: random.Random) -> bytes | None:
    if suffix == ".jsonl":
        lines = content.splitlines()
        place = rng.randrange(len(lines))
        lines[place] = _changed_json(lines[place], ".json", rng) or b""
        return b"\n".join(lines)
    if suffix == ".safetensors":
        size = int.from_bytes(content[:8], "little")
        header = _changed_json(content[8 : 8 + size], ".json", rng) or b""
        return len(header).to_bytes(8, "little") + header + content[8 + size :]
    if suffix != ".json":
        return None
    value = json.loads(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        value = _changed_value(value, rng)
    depth = rng.choice((10, 900, 100_000))
    return json.dumps(value).replace(json.dumps(DEEP), "[" * depth + "]" * depth).encode()


def _changed_value(value: Any, rng: random.Random) -> Any:
    """The value with one part replaced, removed or repeated."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.85:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = rng.choice(keys)
        if rng.random() < 0.15:
            del value[key]
        else:
            value[key] = _changed_value(value[key], rng)
        return value
    others = [None, True, [], {}, [value], {"x": value}, DEEP, rng.choice(NUMBERS), rng.choice(TEXTS)]
    return rng.choice([*others, rng.choice(NUMBERS), rng.choice(TEXTS)])


def _changed_bytes(content: bytes, rng: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 3, 10))):
        # Headers are at the beginning, or at the end.
        place = rng.randrange(max(1, min(len(data), rng.choice((64, 4096, 1 << 40)))))
        if rng.random() < 0.25:
            place = len(data) - 1 - place
        length = rng.choice((1, 4, 8, 100))
        what = rng.randrange(6)
        if what == 0 and data:
            data[min(place, len(data) - 1)] ^= 1 << rng.randrange(8)
        elif what == 1:
            number = rng.choice((0, 1, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1))
            data[place : place + 8] = number.to_bytes(8, "little")
        elif what == 2:
            del data[place : place + length]
        elif what == 3:
            data[place:place] = data[place : place + length]
        elif what == 4:
            data[place : place + length] = rng.randbytes(length)
        else:
            del data[place if rng.random() < 0.3 else len(data) - 1 :]
    return bytes(data)


# ---- running


def attempt(way: WayIn, valid: Path, files: list[Path], number: int, place: Path) -> None:
    """Damage a copy and read it; runs in a child process and ends it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    signal.alarm(WALL_SECONDS)
    rng = random.Random(number)
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(valid, place)
    for file in rng.sample(files, 1 if rng.random() < 0.9 else min(2, len(files))):
        damaged(place / file, rng)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with contextlib.suppress(SceError), open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        way.read(place)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    if grown > MEMORY_MIB:
        raise MemoryError(f"{grown} MiB")


def _child(way: WayIn, valid: Path, files: list[Path], number: int, place: Path, said: Path) -> None:
    with said.open("w") as out:
        os.dup2(out.fileno(), 2)
        os.dup2(out.fileno(), 1)
        try:
            attempt(way, valid, files, number, place)
        except BaseException:
            traceback.print_exc(file=out)
            out.flush()
            os._exit(1)
        os._exit(0)


def findings(name: str, seconds: float, first: int, kept: Path, counts: dict[str, Any]) -> Iterator[str]:
    """Damage and read until the time is over; yields a line for each finding, then one for all, and counts them."""
    way, number, seen = WAYS[name], first, set[str]()
    with tempfile.TemporaryDirectory() as temporary:
        valid, place, said = (Path(temporary) / part for part in ("valid", "copy", "said"))
        valid.mkdir()
        files = [path.relative_to(valid) for path in sorted(way.make(valid))]
        way.read(shutil.copytree(valid, place))  # what is imported here is not imported by every child
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            child = multiprocessing.get_context("fork").Process(
                target=_child, args=(way, valid, files, number, place, said)
            )
            child.start()
            child.join()
            if child.exitcode != 0:
                text = said.read_text(errors="replace")
                where = [line.strip() for line in text.splitlines() if line.strip().startswith("File ")][-1:]
                kind = f"{child.exitcode} {text.strip().splitlines()[-1][:200] if text.strip() else ''} {where}"
                if (about := f"{child.exitcode} {where or kind}") not in seen:
                    seen.add(about)
                    shutil.copytree(place, kept / f"{name}-{number}", dirs_exist_ok=True, symlinks=True)
                    (kept / f"{name}-{number}.txt").write_text(text)
                    yield f"{name} {number}: {kind}"
            number += 1
    counts[name] = {"copies": number - first, "findings": len(seen), "first_seed": first}
    yield f"{name}: {number - first} copies, {len(seen)} findings, from seed {first} on"


def main() -> None:
    """Go through the ways in, or one of them; exit code 1 if there is a finding."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=1, help="for each way in")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=WAYS)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="folder for what was found")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON, and all else on standard error")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # threads do not survive the fork
    found, counts = 0, dict[str, Any]()
    for name in [arguments.only] if arguments.only else WAYS:
        for line in findings(name, 60 * arguments.minutes, arguments.seed, arguments.keep.resolve(), counts):
            (sys.stderr if arguments.json else sys.stdout).write(f"{line}\n")
            sys.stdout.flush()
            found += not line.startswith(f"{name}:")
    if arguments.json:
        sys.stdout.write(json.dumps({"ways": counts}) + "\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
