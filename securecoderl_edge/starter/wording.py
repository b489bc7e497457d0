"""Small variations that families share: names of variables, words, ways to ask for the same thing."""

from __future__ import annotations

import random

LIST_NAMES = ("nums", "values", "items", "data", "arr", "xs", "seq")
ITEM_NAMES = ("x", "v", "item", "num", "value")
TOTAL_NAMES = ("total", "result", "res", "ans", "acc")
TEXT_NAMES = ("s", "text", "line", "word")
COUNT_NAMES = ("n", "count", "size", "k")

WORDS = (
    "apple",
    "river",
    "stone",
    "cloud",
    "tiger",
    "piano",
    "lemon",
    "ocean",
    "maple",
    "robot",
    "candle",
    "garden",
    "window",
    "silver",
    "orange",
    "planet",
    "bridge",
    "forest",
    "mirror",
    "pencil",
    "rocket",
    "castle",
    "basket",
    "ladder",
    "island",
    "music",
    "bread",
    "chair",
    "train",
    "cat",
    "dog",
    "sun",
    "moon",
    "map",
    "key",
    "tea",
    "ice",
    "fox",
    "owl",
    "bee",
    "egg",
    "hat",
    "net",
    "pot",
    "rug",
)


def name(rng: random.Random, pool: tuple[str, ...], *taken: str) -> str:
    """A name from ``pool`` that is not among ``taken``."""
    return rng.choice([candidate for candidate in pool if candidate not in taken])


def phrase(rng: random.Random, *choices: str) -> str:
    """One of several phrasings with the same meaning."""
    return rng.choice(choices)


def words(rng: random.Random, low: int, high: int) -> list[str]:
    """Between ``low`` and ``high`` (inclusive) lower-case words, repeats allowed."""
    return [rng.choice(WORDS) for _ in range(rng.randint(low, high))]
