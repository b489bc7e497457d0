"""The end of a completion where its program ends, as in `sce bench`, for tokens behind it that nobody would read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from securecoderl_edge.models.tokenizer import Tokenizer
from securecoderl_edge.prompts.extraction import PromptFacts, is_over

# One of these is in every text whose program is over in a style of training: a fence, or the heading of a section.
_MARKS = ("```", "~~~", "###")


class ProgramEnd:
    """Tells, token by token, whether a completion has its whole program: `extraction.is_over` at each new line.

    More text would then change neither program nor reward. In the style ``chat`` another block may always follow.

    Args:
        facts: of each prompt; None where all of the text is the program, which never ends before the text.
    """

    def __init__(self, tokenizer: Tokenizer, facts: Sequence[PromptFacts | None]) -> None:
        self._tokenizer, self._facts = tokenizer, facts
        self._drawn: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        self._has_newline: dict[int, bool] = {}

    def is_over(self, prompt: int, sample: int, token: int) -> bool:
        """Whether a sampled token, the next one of its completion, ended the program."""
        drawn, facts = self._drawn[prompt, sample], self._facts[prompt]
        drawn.append(token)
        if token not in self._has_newline:
            self._has_newline[token] = "\n" in self._tokenizer.decode([token])
        if facts is None or not self._has_newline[token]:
            return False
        text = self._tokenizer.decode(drawn)
        return any(mark in text for mark in _MARKS) and is_over(text, facts)
