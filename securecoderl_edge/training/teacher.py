"""The teacher of a run, `ppo.reference`: a frozen model that says how probable the policy's own tokens are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.device import Compute
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.tokenizer import Tokenizer, read_tokenizer
from securecoderl_edge.system.files import read_json


def load_teacher(folder: Path, compute: Compute) -> Any:
    """The frozen model in a folder, in the precision of the base."""
    return load_base(folder, compute.base_precision, compute.device, compute.products)


def check_teacher(
    name: str, folder: Path, base: Path, tokenizer: Tokenizer, say: Callable[[str], None] = lambda message: None
) -> None:
    """Check that each token of the policy is the same token of the teacher in ``folder``.

    Embeddings are often padded with rows that no text has: their numbers may differ, which is told.

    Args:
        name: of the teacher. base: the folder of the policy's base model. tokenizer: of that.

    Raises:
        UsageError: a token is another one, or missing.
    """
    own, theirs = (each.backend.get_vocab(with_added_tokens=True) for each in (tokenizer, read_tokenizer(folder)))
    other = sorted((index, text) for text, index in own.items() if theirs.get(text) != index)
    if other:
        raise UsageError(
            f"ppo.reference {name}: {len(other)} of the policy's {len(own)} tokens are other ones there, first "
            f"{other[0][1]!r} ({other[0][0]}). Choose a teacher with the same tokenizer"
        )
    rows = [read_json(each / "config.json").get("vocab_size") for each in (base, folder)]
    if rows[0] != rows[1]:
        say(f"warning: {name} has {rows[1]} rows of tokens, the policy {rows[0]}; all {len(own)} tokens of texts agree")
