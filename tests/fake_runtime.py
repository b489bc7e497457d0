"""A runtime without a model: it answers from a table, or by a rule, and counts what it was asked."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.prompts.chat import ChatTemplate
from securecoderl_edge.prompts.extraction import PromptFacts
from securecoderl_edge.prompts.styles import OURS
from securecoderl_edge.runtimes.extras import TEXT_ONLY
from securecoderl_edge.runtimes.protocol import WHOLE_REQUEST, Completion, OnToken, Part, Sampling, Usage

RIGHT = "print(int(input()) * 2)\n"
WRONG = "print(int(input()))\n"
BROKEN = "print(int(input()\n"
UNSAFE = "print(eval(input()) * 2)\n"

# Gives the text of one sample: prompt, sample number, and the generator of its random numbers.
Writer = Callable[[str, int, random.Random], str]


def problem(number: int) -> Problem:
    """Double a number; five tests."""
    tests = tuple(Test(f"{value + number}\n", f"{2 * (value + number)}\n") for value in range(1, 6))
    return Problem(f"p{number}", f"Read a number and print its double. ({number})", tests=tests)


def mixed(_prompt: str, _sample: int, rng: random.Random) -> str:
    """Programs of all kinds, by chance."""
    return rng.choice((RIGHT, WRONG, BROKEN, UNSAFE))


def always(text: str) -> Writer:
    """The same text for everything."""
    return lambda _prompt, _sample, _rng: text


def by_problem(texts: dict[Problem, str]) -> Writer:
    """A text for each problem."""
    answers = {OURS.prompt(each): text for each, text in texts.items()}
    return lambda prompt, _sample, _rng: answers[prompt]


class FakeRuntime:
    """Implements `protocol.Runtime`."""

    name = "fake"
    context = 1_000_000
    prompt_style: str | None = OURS.style
    chat_template: ChatTemplate | None = None
    abilities = TEXT_ONLY

    def __init__(self, write: Writer = mixed, fail_after: int | None = None) -> None:
        self.write, self.fail_after = write, fail_after
        self.calls: list[tuple[int, Sampling]] = []
        self.seeds: list[tuple[int, int, int]] = []
        self.prompts: list[str] = []
        self.is_closed = False
        self._tokens = 0

    def generate(
        self,
        prompts: Sequence[str],
        n: int,
        sampling: Sampling,
        on_token: OnToken | None = None,
        facts: Sequence[PromptFacts | None] | None = None,
        part: Part = WHOLE_REQUEST,
    ) -> list[list[Completion]]:
        keys = part.keys(len(prompts), n)
        self.calls.append((len(keys), sampling))
        self.prompts += [prompts[index] for index in dict.fromkeys(index for index, _ in keys)]
        grouped: list[list[Completion]] = [[] for _ in prompts]
        for index, sample in keys:
            if self.fail_after == len(self.seeds):
                raise KeyboardInterrupt
            self.seeds.append(part.seed_of((index, sample), sampling))
            text = self.write(prompts[index], sample, random.Random(str(self.seeds[-1])))
            grouped[index].append(self._complete(index, sample, text, on_token))
            part.done((index, sample), grouped[index][-1])
        return grouped

    def controls(self) -> tuple[str, ...]:
        return ("<|end|>", "<|user|>", "<|assistant|>", "<|system|>")

    def count_tokens(self, prompt: str) -> int:
        return len(prompt.split())

    def usage(self) -> Usage:
        return Usage(10 * len(self.prompts), len(self.prompts) / 100, self._tokens, self._tokens / 50, 4_000_000)

    def close(self) -> None:
        self.is_closed = True

    def _complete(self, prompt: int, sample: int, text: str, on_token: OnToken | None) -> Completion:
        pieces = text.split()
        self._tokens += len(pieces)
        for piece in pieces:
            if on_token is not None:
                on_token(prompt, sample, piece)
        ids, logprobs = tuple(range(len(pieces))), tuple(-0.1 for _ in pieces)
        return Completion(
            text, ids, logprobs, "stop", 10, tuple(0.01 * (place + 1) for place in range(max(1, len(ids))))
        )
