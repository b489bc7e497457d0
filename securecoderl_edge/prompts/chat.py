"""The chat template of a model.

Templates are programs that come with a model, written in Jinja. They are rendered in Jinja's sandbox, which restricts
them to their arguments.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import MissingExtra, SceError, needs, not_utf8
from securecoderl_edge.models.tokenizer import special_tokens
from securecoderl_edge.prompts.thoughts import open_thought
from securecoderl_edge.system.files import read_json_if_there
from securecoderl_edge.text import with_seams

_PROBE = "\x00answer\x00"
# Of one rendering: characters, and rounds of all loops over numbers.
_LONGEST, _MOST_ROUNDS = 1 << 20, 100_000
# What templates take for today: a run and its evaluations use the same prompts, whenever they are repeated.
TODAY = datetime(2025, 1, 1)


@dataclass(frozen=True)
class ChatTemplate:
    """A template with the special tokens that it may use.

    Attributes:
        source: Jinja text.
        tokens: texts of the special tokens by name: ``bos_token``, ``eos_token`` and so on.
        where: its file, for messages.
        thinks: whether the model may think before it answers, if it was trained to.
        earlier: the messages of a conversation before the question, each with ``role`` and ``content``.
        controls: names of special tokens that are only text in messages and tools, see `text.SEAM`; without it, text
            of a message can end it and begin one of another role.
    """

    source: str
    tokens: Mapping[str, str] = field(default_factory=dict)
    where: str = ""
    thinks: bool = False
    earlier: tuple[Mapping[str, str], ...] = ()
    controls: tuple[str, ...] = ()

    def ask(self, question: str) -> str:
        """The prompt for ``question``, which the model continues; it has a start token if the template does.

        Raises:
            SceError: the template cannot be rendered.
            MissingExtra: jinja2 is not installed.
        """
        return self.converse([*self.earlier, {"role": "user", "content": question}])

    def converse(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> str:
        """The prompt for the next answer in a conversation.

        Args:
            messages: each with ``role`` and ``content``, and what else the template reads.
            tools: descriptions of functions, in OpenAI's format.

        Raises:
            SceError: the template cannot be rendered, or rejects the messages.
            MissingExtra: jinja2 is not installed.
        """
        prompt = self.render(messages, tools, add_generation_prompt=True)
        # Templates of models that always think begin a thought: without thinking it is an empty one.
        closing = "" if self.thinks else open_thought(prompt)
        return f"{prompt.rstrip()}\n\n{closing}\n\n" if closing else prompt

    def ends_answers(self) -> bool:
        """Whether the end-of-sequence token follows an answer, as in models trained to chat.

        Base models often come with the template of their chat models, but with another end-of-sequence token.

        Raises:
            SceError: the template cannot be rendered.
            MissingExtra: jinja2 is not installed.
        """
        eos = self.tokens.get("eos_token")
        if not eos:
            return False
        turns: list[Mapping[str, str]] = [
            {"role": "user", "content": "question"},
            {"role": "assistant", "content": _PROBE},
        ]
        return self.render(turns, add_generation_prompt=False).partition(_PROBE)[2].lstrip().startswith(eos)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool,
    ) -> str:
        """Messages as the template writes them, with or without the beginning of an answer.

        Raises:
            SceError, MissingExtra: as for `converse`.
        """
        try:
            pieces = _compiled(self.source).generate(
                range=_bounded_range(),
                messages=self.as_text(list(messages)),
                tools=self.as_text(list(tools)) if tools else None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                # Two names for the same: Qwen's and SmolLM's, and Granite's.
                enable_thinking=self.thinks,
                thinking=self.thinks,
                **self.tokens,
            )
            text = "".join(_bounded(pieces))
        except MissingExtra:
            raise
        except Exception as error:  # a template is a program: it can fail in any way
            raise SceError(
                f"{self.where or 'the model'}: cannot render the chat template ({str(error)[:120]}); "
                "use another prompt style, for example --prompt-style code"
            ) from None
        return text

    def as_text(self, value: Any) -> Any:
        """A text, or what JSON can hold, in which no text is one of the `controls`."""
        if isinstance(value, str):
            return with_seams(value, self.controls)
        if isinstance(value, Mapping):
            return {self.as_text(key): self.as_text(each) for key, each in value.items()}
        return list(map(self.as_text, value)) if isinstance(value, list) else value


class Untemplated(ChatTemplate):
    """Stands for a template that is not at hand: the question alone, and the beginning of a thought."""

    def ask(self, question: str) -> str:
        """The question."""
        return f"{question}\n<think>" if self.thinks else question


def _bounded(pieces: Iterable[str]) -> Iterator[str]:
    """The pieces of a text that must not become endless."""
    length = 0
    for piece in pieces:
        length += len(piece)
        if length > _LONGEST:
            raise ValueError(f"more than {_LONGEST} characters")
        yield piece


def _bounded_range() -> Callable[..., range]:
    """A ``range`` for one rendering whose loops, one within the other, end."""
    left = _MOST_ROUNDS

    def bounded(*arguments: int) -> range:
        nonlocal left
        found = range(*arguments)
        left -= len(found)
        if left < 0:
            raise ValueError(f"loops of more than {_MOST_ROUNDS} rounds")
        return found

    return bounded


@functools.lru_cache(maxsize=8)
def _compiled(source: str) -> Any:
    """A template with the functions that transformers gives it."""
    with needs("jinja2", "onnx"):  # the extras gguf and train have it as well
        from jinja2 import TemplateError, nodes
        from jinja2.ext import Extension, loopcontrols
        from jinja2.parser import Parser
        from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        """Without the escapes for HTML of Jinja's own filter."""
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    class Generation(Extension):
        """The tag that marks answers for training code; it adds nothing to the text."""

        tags = frozenset(("generation",))  # type: ignore[assignment]  # jinja2 only tests membership

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )
    environment.globals |= {"raise_exception": refuse, "strftime_now": TODAY.strftime}
    environment.filters["tojson"] = to_json
    return environment.from_string(source)


def read_chat_template(folder: Path) -> ChatTemplate | None:
    """The chat template of a Hugging Face folder; None if it has none.

    Raises:
        SceError: a file is damaged.
    """
    file, separate = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    settings = read_json_if_there(file)
    source = _text_in(separate) if separate.is_file() else _default_of(settings.get("chat_template"))
    if source is None:
        return None
    return ChatTemplate(source, special_tokens(folder), str(separate if separate.is_file() else file))


def _text_in(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise not_utf8(file, error) from None
    except OSError as error:
        raise SceError(f"{file}: {error.strerror}") from None


def _default_of(template: Any) -> str | None:
    """The template, or the one named default among several."""
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None
