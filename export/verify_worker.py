"""Child process of `verify`: runs an exported file in its usual runtime, and compares it with the original.

A GGUF file may be the original, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securecoderl_edge.export.agreement import Agreement, compare
from securecoderl_edge.export.reference import LONGEST, read_reference, save_reference
from securecoderl_edge.models.architecture import read_architecture
from securecoderl_edge.models.gguf.layout import gguf_context
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.system.machine import cpu_count
from securecoderl_edge.system.processes import serve_once

if TYPE_CHECKING:
    from securecoderl_edge.export.agreement import Array


def measure(path: Path, base: Path, texts: Sequence[str], reference: Path, adapter: Path | None = None) -> Agreement:
    """Run the tokens of ``reference`` through a file, and ``texts`` through both tokenizers.

    Args:
        adapter: a GGUF file with a LoRA adapter to apply to ``path``.

    Raises:
        SceError: the file cannot be loaded, or the vocabularies differ in size.
    """
    from securecoderl_edge.runtimes.gguf.llama import LlamaModel

    tokenizer = read_tokenizer(base)
    with closing(LlamaModel(path)) as model:
        equal = sum(model.tokenize(text) == tokenizer.encode_prompt(text) for text in texts)
        lora = model.load_adapter(adapter) if adapter is not None else None
        with closing(model.open_context(1, LONGEST, cpu_count(), float32_cache=True)) as context:
            if lora is not None:
                context.use_adapter(lora)

            def logits_of(tokens: list[int]) -> Array:
                context.clear(0)
                context.decode(tokens, list(range(len(tokens))), [0] * len(tokens), logits=True)
                return context.logits(len(tokens))

            longest = gguf_context(read_architecture(base))
            traces = (trace.cut(longest) for trace in read_reference(reference))
            return compare(traces, logits_of, len(texts), equal)


def write_reference_of_file(path: Path, prompts: Sequence[str], new_tokens: int, folder: Path) -> None:
    """Run each prompt and its greedy continuation through a GGUF file; see `reference.read_reference`.

    Raises:
        SceError: the file cannot be loaded.
    """
    from securecoderl_edge.runtimes.gguf.llama import LlamaModel

    with closing(LlamaModel(path)) as model:
        longest = min(LONGEST, model.context_length)
        new_tokens = min(new_tokens, longest // 2)

        def continuation(prompt: str) -> tuple[list[int], list[Array]]:
            tokens = model.tokenize(prompt)[: longest - new_tokens]
            logits: list[Array] = []
            fed, start = tokens, 0
            context.clear(0)
            for _ in range(new_tokens + 1):
                context.decode(fed, list(range(start, start + len(fed))), [0] * len(fed), logits=True)
                logits.append(context.logits(len(fed)).copy())
                start, fed = start + len(fed), [int(logits[-1][-1].argmax())]
                tokens = [*tokens, *fed]
            return tokens[:-1], logits

        with closing(model.open_context(1, LONGEST, cpu_count(), float32_cache=True)) as context:
            save_reference(((len(model.tokenize(each)), *continuation(each)) for each in prompts), folder)


def measure_onnx(folder: Path, base: Path, texts: Sequence[str], reference: Path) -> Agreement:
    """Run an ONNX folder in onnxruntime, like `measure`; its tokenizer is the copy in the folder."""
    from securecoderl_edge.runtimes.onnx.model import OnnxModel

    own, original = read_tokenizer(folder), read_tokenizer(base)
    equal = sum(own.encode_prompt(text) == original.encode_prompt(text) for text in texts)
    model = OnnxModel(folder, cpu_count())

    def logits_of(tokens: list[int]) -> Array:
        return model.open_sequences(1, len(tokens)).prefill([tokens])[0]

    return compare(read_reference(reference), logits_of, len(texts), equal)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    if "prompts" in request:
        write_reference_of_file(
            Path(request["path"]), request["prompts"], request["new_tokens"], Path(request["folder"])
        )
        return {}
    adapter = Path(request["adapter"]) if request["adapter"] else None
    path, base, reference = (Path(request[name]) for name in ("path", "base", "reference"))
    if path.is_dir():
        return asdict(measure_onnx(path, base, request["texts"], reference))
    return asdict(measure(path, base, request["texts"], reference, adapter))


if __name__ == "__main__":
    serve_once(_answer)
