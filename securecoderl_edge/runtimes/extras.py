"""What batches do for one task beyond sampling: penalties, grammars, reports of tokens, filling in the middle."""

from __future__ import annotations

from dataclasses import dataclass

# A text, or the ids of its tokens; see `Abilities` for who takes these.
Prompt = str | tuple[int, ...]


@dataclass(frozen=True)
class Extras:
    """What a `DecodingBatch` does for one task beyond sampling.

    All of them apply penalties, to tokens that the completion already has, as OpenAI defines them; the rest needs a
    runtime with `Abilities.vocabulary`.

    Attributes:
        frequency_penalty: subtracted from the logit of a token for each time it occurs. presence_penalty: once.
        alternatives: report this many of the most likely tokens at each place, see `TokenReport`; None: report nothing.
        reports_prompt: report the tokens of the prompt as well.
        grammar: in llama.cpp's GBNF, whose rule ``root`` the text follows; empty: none.
        grammar_after: the grammar holds from the end of this text on, and not before it.
        grammar_within: a text that has followed the rule ``whole`` from its start must go on to follow it from here on.
            With neither of the two the grammar holds from the start.
        reuses_prefix: take the KV cache of an earlier prompt for a common beginning, see `runtimes.gguf.batching`.
    """

    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    alternatives: int | None = None
    reports_prompt: bool = False
    grammar: str = ""
    grammar_after: str = ""
    grammar_within: str = ""
    reuses_prefix: bool = False

    @property
    def is_bound(self) -> bool:
        """Whether a grammar holds from the start."""
        return bool(self.grammar) and not (self.grammar_after or self.grammar_within)


NO_EXTRAS = Extras()


@dataclass(frozen=True)
class InfillTokens:
    """The ids of a model's tokens for filling in the middle of a file; a model may lack the last two.

    Attributes:
        start: tokens that begin every prompt. prefix, suffix, middle: stand before these parts.
        repository, separator: stand before the name of a repository, and before that of a file.
    """

    start: tuple[int, ...]
    prefix: int
    suffix: int
    middle: int
    repository: int | None = None
    separator: int | None = None


@dataclass(frozen=True)
class Abilities:
    """What a runtime can do beyond texts.

    Attributes:
        vocabulary: number of its tokens, if it is a `TokenRuntime` and its batches honour all `Extras`; else 0.
        infill: of a model that was trained to fill in the middle.
    """

    vocabulary: int = 0
    infill: InfillTokens | None = None


TEXT_ONLY = Abilities()


@dataclass(frozen=True)
class TokenReport:
    """One token with the most likely ones at its place.

    Attributes:
        raw: its bytes, one per character (Latin-1); special tokens have their names, but within a completion only its
            end token and those in its text.
        logprob: natural-log probability under the model at temperature 1; None for the first token of a prompt.
        top: ``raw`` and ``logprob`` of the most likely tokens, best first.
    """

    raw: str
    logprob: float | None
    top: tuple[tuple[str, float], ...] = ()
