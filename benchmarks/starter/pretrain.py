"""Train a built-in base model from scratch, on text that the starter families generate: `nano`, or `nano-c` for C.

    python benchmarks/starter/pretrain.py --out FOLDER
    python benchmarks/starter/pretrain.py --language c --out FOLDER

The text has training compositions only: nothing of ``starter:eval``, ``starter:hard`` or ``starter:security``, nothing
near one of their problems, and nothing of ``starter:hard-train`` unless ``--hard-share`` is given. Every document is
one prompt and one reference solution; short styles are more frequent than long ones, and half of the solutions of
security problems are the unsafe ones. Training stops early on purpose: a base model that solves everything could not
show the effect of RL.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from build import WORDINGS, build_for_training
from families.catalogue import FIRMWARE, GENERAL, HARD, SECURITY
from generate import compositions
from torch.nn import functional

from securecoderl_edge.config import setting
from securecoderl_edge.errors import SceError
from securecoderl_edge.languages.language import LANGUAGE_NAMES, PYTHON
from securecoderl_edge.models.files import base_folder
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.models.transformer import output_weight
from securecoderl_edge.prompts.styles import OURS
from securecoderl_edge.system.files import temporary_beside

VOCABULARY = 2048
SECURITY_SHARE, NO_SHARE = Fraction(1, 6), Fraction(0)
END = "<eos>"
_PADDING = "<pad>"
# Between the variants of one document, so that all documents have different ones.
_STRIDE = 1_000_000_007

_Document = tuple[str, str]


@dataclass(frozen=True)
class Pretraining:
    """The settings, which are also the flags of the command line and part of the record."""

    language: str = setting(PYTHON.name, "of the programs", choices=LANGUAGE_NAMES)
    documents: int = setting(24_000, "number of documents")
    rarity: float = setting(1.0, "exponent: how much rarer long styles are; 0: equal")
    wording_rarity: float = setting(1.0, "exponent: how much rarer late wordings are")
    security_share: Fraction = field(
        default=SECURITY_SHARE, metadata={"help": "fraction of security problems; by default 1/6, and 0 for C"}
    )
    hard_share: Fraction = field(default=NO_SHARE, metadata={"help": "fraction of hard problems among the others"})
    hidden_size: int = setting(256, "of a new model")
    layers: int = setting(5, "of a new model")
    steps: int = setting(850, "updates")
    batch_size: int = setting(16, "documents per update")
    learning_rate: float = setting(2e-3, "peak, reached after 100 updates")
    final_rate: float = setting(0.05, "final learning rate, as a fraction of the peak")
    seed: int = setting(0, "of text, order and weights")


def write_documents(chosen: Pretraining) -> list[_Document]:
    """(prompt, program) pairs of training compositions, each with its own wording and inputs.

    Families are equally frequent, and so are the compositions of a family. As in any corpus, long programs are rarer
    than short ones: the styles of a problem are sampled in proportion to 1 / length^``rarity``. ``security_share`` of
    the documents are security problems, with uniformly sampled solutions, and ``hard_share`` of the others are hard
    problems. The first wordings of a building block are the common ones (`choose_wording` with ``wording_rarity``),
    while the problems use all wordings equally. A document too near to a problem for evaluation (`apart`) gets another
    wording, and if none is far enough, another composition. In C there are general and firmware problems only, so both
    shares must be 0.
    """
    rng = random.Random(chosen.seed)
    general = GENERAL if chosen.language == PYTHON.name else [each for each in (*GENERAL, *FIRMWARE) if each.has_c]
    keys = {family: [key for _, key in compositions((family,), held_out=False)] for family in (*general, *HARD)}
    security = list(compositions(SECURITY, held_out=False))
    documents: list[_Document] = []
    others = 0
    for number in range(1, chosen.documents + 1):
        is_security = _is_due(number, chosen.security_share)
        others += not is_security
        is_hard = not is_security and _is_due(others, chosen.hard_share)
        variants = range(chosen.seed * chosen.documents + number, sys.maxsize, _STRIDE)[:WORDINGS]
        problem = None
        while problem is None:
            if is_security:
                family, key = rng.choice(security)
            else:
                family = rng.choice(HARD if is_hard else general)
                key = rng.choice(keys[family])
            problem = build_for_training(family, key, variants, chosen.wording_rarity, language=chosen.language)
        weights = [1.0 if is_security else len(program) ** -chosen.rarity for program in problem.solutions]
        documents.append((OURS.prompt(problem), rng.choices(problem.solutions, weights)[0]))
    return documents


def _is_due(number: int, share: Fraction) -> bool:
    """Whether the ``number``-th item belongs to a fraction of ``share``, evenly spread."""
    return int(number * share) > int((number - 1) * share)


def write_tokenizer(documents: list[_Document], folder: Path) -> None:
    """Write a byte-level BPE tokenizer with GPT-2's pre-tokenization, which GGUF runtimes know by that name."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[_PADDING, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((prompt + program for prompt, program in documents[:20_000]), trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": _PADDING, "eos_token": END}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def build_model(hidden_size: int, layers: int) -> Any:
    """A small Llama with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden_size,
        intermediate_size=hidden_size * 3,
        num_hidden_layers=layers,
        num_attention_heads=hidden_size // 64,
        num_key_value_heads=hidden_size // 64,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    return LlamaForCausalLM(config)


def batches(lengths: list[int], batch_size: int, rng: random.Random, window: int = 50) -> Iterator[list[int]]:
    """Endless batches of document indices of similar length, every document once per epoch."""
    while True:
        order = list(range(len(lengths)))
        rng.shuffle(order)
        for start in range(0, len(order), batch_size * window):
            chunk = sorted(order[start : start + batch_size * window], key=lengths.__getitem__)
            groups = [chunk[i : i + batch_size] for i in range(0, len(chunk), batch_size)]
            rng.shuffle(groups)
            yield from groups


def pretrain(out: Path, chosen: Pretraining, init: Path | None, compiled: bool) -> dict[str, Any]:
    """Train and write ``out``; returns the record of the run."""
    started = time.monotonic()
    text = write_documents(chosen)
    digest = hashlib.sha256("\0".join(prompt + program for prompt, program in text).encode()).hexdigest()
    out.mkdir(parents=True, exist_ok=True)
    if init:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(init / name, out / name)
    else:
        write_tokenizer(text, out)
    tokenizer = read_tokenizer(out)
    prompts = [tokenizer.encode_prompt(prompt) for prompt, _ in text]
    programs = [[*tokenizer.encode(program), tokenizer.eos_token_id] for _, program in text]
    _say(f"{len(text)} documents in {time.monotonic() - started:.0f} s, corpus sha256 {digest}")

    torch.manual_seed(chosen.seed)
    model = load_base(init).requires_grad_(True).train() if init else build_model(chosen.hidden_size, chosen.layers)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=chosen.learning_rate, betas=(0.9, 0.95), weight_decay=0.05, fused=True
    )
    # Fusing the many small operations of a small model about doubles the speed; it needs a C++ compiler.
    if compiled and not (shutil.which("c++") or shutil.which("g++")):
        _say("no C++ compiler here: continuing without torch.compile, at about half the speed")
        compiled = False
    encode = torch.compile(model.model, dynamic=True) if compiled else model.model
    chooser = batches(
        [len(a) + len(b) for a, b in zip(prompts, programs, strict=True)], chosen.batch_size, random.Random(chosen.seed)
    )
    tokens_seen, running, first_step = 0, 0.0, time.monotonic()
    # A processor without AVX-512 emulates bfloat16, which takes many times longer than float32.
    has_bfloat16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    for step in range(1, chosen.steps + 1):
        rows = next(chooser)
        width = max(len(prompts[row]) + len(programs[row]) for row in rows)
        tokens = torch.zeros(len(rows), width, dtype=torch.long)
        answer = torch.zeros(len(rows), width - 1, dtype=torch.bool)
        for index, row in enumerate(rows):
            sequence = prompts[row] + programs[row]
            tokens[index, : len(sequence)] = torch.tensor(sequence)
            answer[index, len(prompts[row]) - 1 : len(sequence) - 1] = True
        warm, cooled = min(1.0, step / 100), max(chosen.final_rate, 1 - step / chosen.steps)
        for group in optimizer.param_groups:
            group["lr"] = chosen.learning_rate * warm * cooled
        with torch.autocast("cpu", torch.bfloat16, enabled=has_bfloat16):
            hidden = encode(input_ids=tokens[:, :-1], use_cache=False).last_hidden_state[answer]
            logits = hidden @ output_weight(model).T
        loss = functional.cross_entropy(logits.float(), tokens[:, 1:][answer])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        tokens_seen += int((tokens != 0).sum())
        running = loss.item() if step == 1 else 0.98 * running + 0.02 * loss.item()
        if step % 100 == 0 or step == chosen.steps:
            speed = tokens_seen / (time.monotonic() - first_step)
            _say(
                f"step {step}/{chosen.steps} loss {running:.4f} {tokens_seen / 1e6:.2f} M tokens, {speed:.0f} tokens/s"
            )
    model.half().save_pretrained(out)
    settings = {name: str(value) if isinstance(value, Fraction) else value for name, value in asdict(chosen).items()}
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "corpus_sha256": digest,
        "continued_from": json.loads((init / "training.json").read_text(encoding="utf-8")) if init else None,
        **settings,
        "tokens_seen": tokens_seen,
        "final_loss": round(running, 4),
        "seconds": round(time.monotonic() - started),
        "torch": torch.__version__,
    }


def _say(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


def _base(name: str) -> Path:
    try:
        return base_folder(name)
    except SceError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main() -> None:
    """Parse the command line, train, and write the record next to the weights."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for the weights, the tokenizer and training.json"
    )
    parser.add_argument("--init", type=_base, help="start from nano, or a folder that this script wrote")
    parser.add_argument("--compiled", action="store_true", help="use torch.compile")
    for each in fields(Pretraining):
        parser.add_argument(
            f"--{each.name.replace('_', '-')}",
            type=type(each.default),
            default=each.default,
            choices=each.metadata.get("choices") or None,
            help=each.metadata["help"],
        )
    parser.set_defaults(security_share=None)
    arguments = vars(parser.parse_args())
    if arguments["security_share"] is None:
        arguments["security_share"] = SECURITY_SHARE if arguments["language"] == PYTHON.name else NO_SHARE
    out, init, compiled = (arguments.pop(name) for name in ("out", "init", "compiled"))
    with temporary_beside(out, replace_folder=True) as folder:
        record = pretrain(folder, Pretraining(**arguments), init, compiled)
        (folder / "training.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
