"""Prompts and token counts as a model sees them, without loading its weights if possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.statistics import Lengths, spread
from securecoderl_edge.prompts.chat import read_chat_template
from securecoderl_edge.prompts.styles import PromptFormat, choose_format
from securecoderl_edge.runtimes.spec import ModelSpec
from securecoderl_edge.system.files import read_json
from securecoderl_edge.text import replace_surrogates


@dataclass(frozen=True)
class Reader:
    """The prompt format, tokenizer and context of a model.

    Attributes:
        count: tokens of a prompt, start token included.
        context: maximum number of tokens; None if its files do not give it.
    """

    format: PromptFormat
    count: Callable[[str], int]
    context: int | None

    def lengths(self, problems: Sequence[Problem]) -> Lengths:
        """Lengths of the prompts and of the shortest solutions of ``problems`` in tokens."""
        prompts = [self.count(self.format.prompt(problem)) for problem in problems]
        shortest = [(min(each.solutions, key=len), each.language) for each in problems if each.solutions]
        solutions = [self.count(replace_surrogates(self.format.answer(*pair))) for pair in shortest]
        return Lengths(
            style=self.format.style,
            prompts=spread(prompts),
            solutions=spread(solutions) if solutions else None,
            context=self.context,
            too_long=sum(self.context is not None and count >= self.context for count in prompts),
        )


@contextmanager
def open_reader(spec: ModelSpec, style: str = "auto") -> Iterator[Reader]:
    """The tokenizer of a model and the format of its prompts.

    Args:
        style: as in `choose_format`.

    Raises:
        UsageError: unknown style, or one that the model does not offer.
        SceError: the tokenizer is missing or damaged.
        MissingExtra: the package that reads it is not installed.
    """
    if spec.kind == "gguf":
        from securecoderl_edge.runtimes import open_runtime

        with closing(open_runtime(spec, parallel=1)) as runtime:
            format = choose_format(style, spec.prompt_style or runtime.prompt_style, runtime.chat_template)
            yield Reader(format, runtime.count_tokens, runtime.context)
        return
    folder = spec.folder()
    tokenizer = read_tokenizer(folder)
    chat = read_chat_template(folder)

    def count(text: str) -> int:
        return len(tokenizer.encode_prompt(text))

    context = read_json(folder / "config.json").get("max_position_embeddings")
    yield Reader(choose_format(style, spec.prompt_style, chat), count, context if isinstance(context, int) else None)
