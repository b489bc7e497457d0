"""The tokenizer of a model folder, read in one way by training, every runtime, export and its verification.

It is the ``tokenizers`` package's reading of tokenizer.json, completed by tokenizer_config.json. transformers rebuilds
some classes of tokenizers without the file's own pre-tokenizer, and ignores ``add_bos_token``: it is not used here.
Spaces are never cleaned up after decoding (``clean_up_tokenization_spaces``): that would change programs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError, first_line, needs
from securecoderl_edge.system.files import read_json, read_json_if_there
from securecoderl_edge.text import SEAM

_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")
_MOST_TOKENS = 1 << 31  # that a vocabulary can have
_NAMING_ENDS = ("config.json", "generation_config.json")
_FLAGS = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
# Lost by tokenizers that are made for prose: indentation, tabs, line ends, upper case, spaces before signs.
_CODE = "def F(x, y_2):\n    if x<=0 :\n\treturn [ 1,  -1 ]\n\n\n        # it's , Done .  \n    return {'a': x**2}\n"


@dataclass(frozen=True)
class Tokenizer:
    """A model's tokenizer; see `read_tokenizer`.

    Attributes:
        bos_token_id: the start token, if the model has one.
        eos_token_id: the token that ends a text.
        pad_token_id: fills rows of a batch; the EOS token if the model names none.
        ends: EOS and stop tokens.
        before: tokens that a prompt gets before it: none, or usually a start token.
        backend: the ``tokenizers.Tokenizer``.
    """

    bos_token_id: int | None
    eos_token_id: int
    pad_token_id: int
    ends: frozenset[int]
    before: tuple[int, ...]
    backend: Any = field(repr=False)

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids of a prompt; it gets no second start token if it begins with one, as chat templates do."""
        ids = self.encode(text)
        starts = self.bos_token_id is not None and ids[:1] == [self.bos_token_id]
        return [*(() if starts else self.before), *ids]

    def encode(self, text: str) -> list[int]:
        """Token ids of a text alone, such as an answer that follows a prompt; see `text.SEAM`.

        Raises:
            SceError: the tokenizer fails on it.
        """
        try:
            parts = [self.backend.encode(part, add_special_tokens=False).ids for part in text.split(SEAM)]
        except BaseException as error:
            raise _refusal(error) from None
        return [token for part in parts for token in part]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, without special tokens; errors as in `encode`."""
        try:
            return str(self.backend.decode(ids, skip_special_tokens=True))
        except BaseException as error:
            raise _refusal(error) from None

    def controls(self) -> tuple[str, ...]:
        """The names of its special tokens, which are commands to the model wherever a text has them."""
        added = self.backend.get_added_tokens_decoder().values()
        return tuple(token.content for token in added if token.special)

    def id_of(self, text: str) -> int | None:
        """The id of a token, by its text."""
        token = self.backend.token_to_id(text)
        return None if token is None else int(token)

    def document(self) -> dict[str, Any]:
        """The tokenizer.json that says all of it but ``before``."""
        return dict(json.loads(self.backend.to_str()))


def is_failure(error: BaseException) -> bool:
    """Whether tokenizers failed: its bindings raise bare `Exception`, and panics that are none."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _refusal(error: BaseException) -> BaseException:
    if is_failure(error):
        return SceError(f"the tokenizer fails ({first_line(error)}); tokenizer.json is damaged")
    return error


def special_tokens(folder: Path) -> dict[str, str]:
    """Texts of a model folder's special tokens by name: ``bos_token``, ``eos_token``, ``pad_token``, ``unk_token``.

    Raises:
        SceError: tokenizer_config.json is damaged.
    """
    older = read_json_if_there(folder / "special_tokens_map.json")
    settings = {**older, **read_json_if_there(folder / "tokenizer_config.json")}
    texts = {}
    for name in _NAMES:
        token = settings.get(name)
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            if text.encode("utf-8", "replace").decode() != text:  # half of a character
                raise SceError(f"{folder / 'tokenizer_config.json'}: {name} is not text")
            texts[name] = text
    return texts


def end_tokens(folder: Path, end_of_sequence: int | None) -> frozenset[int]:
    """EOS and stop tokens: the tokenizer's, and those in the model's configuration files.

    Raises:
        SceError: a file is damaged.
    """
    return frozenset(token for token in (end_of_sequence, *_named_ends(folder)) if token is not None)


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a model folder.

    Raises:
        SceError: a file is missing or damaged; there is no EOS token, or an id without a row in the embedding; or
            encoding changes programs.
        MissingExtra: tokenizers is not installed.
    """
    where, settings = folder / "tokenizer.json", read_json_if_there(folder / "tokenizer_config.json")
    backend = _open(folder, settings)
    texts = special_tokens(folder)
    ids = {name: backend.token_to_id(text) for name, text in texts.items()}
    bos = ids.get("bos_token")
    eos = ids.get("eos_token") if ids.get("eos_token") is not None else next(iter(_named_ends(folder)), None)
    if eos is None:
        raise SceError(f"{folder}: the tokenizer has no end-of-sequence (EOS) token; add eos_token_id to config.json")
    # So that they are found in texts and left out of decoded ones, whatever tokenizer.json says of them.
    backend.add_special_tokens([texts[name] for name in ("bos_token", "eos_token") if ids.get(name) is not None])
    before = _before(backend, bos, settings.get("add_bos_token"))
    start = bos if bos is not None else read_json_if_there(folder / "config.json").get("bos_token_id")
    pad = ids.get("pad_token")
    tokenizer = Tokenizer(
        bos_token_id=start if isinstance(start, int) else None,
        eos_token_id=eos,
        pad_token_id=eos if pad is None else pad,
        ends=end_tokens(folder, eos),
        before=before,
        backend=backend,
    )
    if tokenizer.decode(tokenizer.encode(_CODE)) not in (
        _CODE,
        " " + _CODE,
    ):  # SentencePiece may add a space before a text
        raise SceError(f"{where}: decoding does not give back the text that was encoded; the model cannot write code")
    return tokenizer


def _named_ends(folder: Path) -> list[int]:
    named: list[Any] = []
    for name in _NAMING_ENDS:
        value = read_json_if_there(folder / name).get("eos_token_id")
        named += value if isinstance(value, list) else [value]
    # Of much larger numbers, many can have the same hash: a set of them would take very long.
    return [token for token in named if type(token) is int and 0 <= token < _MOST_TOKENS]


def _open(folder: Path, settings: dict[str, Any]) -> Any:
    """The tokenizer in tokenizer.json, with the tokens that only tokenizer_config.json adds."""
    with needs("tokenizers", "onnx"):  # the train extra has it as well
        from tokenizers import AddedToken, Tokenizer
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise SceError(f"{folder}: no tokenizer.json; download it from the source of the weights")
    try:
        model = read_json(path)["model"]
        if model.get("type") != "WordPiece" and model.get("continuing_subword_prefix"):
            # tokenizers cuts parts of characters off merges without this prefix, and ends the process.
            raise ValueError("continuing_subword_prefix is not supported")
        backend = Tokenizer.from_file(str(path))
        backend.no_truncation()
        backend.no_padding()
        more = settings.get("added_tokens_decoder")
        added = more.items() if isinstance(more, dict) else ()
        for index, token in sorted((int(index), token) for index, token in added):
            if backend.token_to_id(token["content"]) is None:
                backend.add_tokens([AddedToken(**{name: token[name] for name in _FLAGS if name in token})])
                if backend.token_to_id(token["content"]) != index:
                    raise ValueError(f"token {index} of tokenizer_config.json does not follow its last one")
    except BaseException as error:
        if not is_failure(error):
            raise
        raise SceError(f"{path}: not a tokenizer ({first_line(error)})") from None
    beyond = _tokens_without_row(backend, folder, settings)
    if not beyond:
        return backend
    document = json.loads(backend.to_str())
    document["added_tokens"] = [token for token in document["added_tokens"] if token["id"] not in beyond]
    return Tokenizer.from_str(json.dumps(document))


def _tokens_without_row(backend: Any, folder: Path, settings: dict[str, Any]) -> set[int]:
    """Added tokens beyond the embedding that no prompt has, as in Gemma 3's text models: they can be left out.

    Raises:
        SceError: other tokens are beyond it, too.
    """
    config = read_json_if_there(folder / "config.json")
    inner = config.get("text_config")
    rows = config.get("vocab_size", inner.get("vocab_size") if isinstance(inner, dict) else None)
    if not isinstance(rows, int):
        return set()
    beyond = {text: index for text, index in backend.get_vocab(with_added_tokens=True).items() if index >= rows}
    used = [*special_tokens(folder).values(), json.dumps(settings.get("chat_template"), ensure_ascii=False)]
    with suppress(OSError, UnicodeDecodeError):  # `prompts.chat` says what is wrong with it
        used.append((folder / "chat_template.jinja").read_text(encoding="utf-8"))
    added = {token.content for token in backend.get_added_tokens_decoder().values()}
    if any(text not in added or any(text in each for each in used) for text in beyond):
        raise SceError(
            f"{folder / 'tokenizer.json'}: token id {max(beyond.values())} exceeds the embedding, which ends at "
            f"{rows - 1}. Take the tokenizer that came with these weights"
        )
    return set(beyond.values())


def _before(backend: Any, start: int | None, wanted: Any) -> tuple[int, ...]:
    """The tokens that the post-processor puts before a text, with the start token if tokenizer_config.json asks for it.

    What it puts behind a text, or ``add_eos_token`` asks for, is for texts to train on: behind it nothing would follow.
    """
    try:
        alone, whole = (tuple(backend.encode("a", add_special_tokens=flag).ids) for flag in (False, True))
    except BaseException as error:
        raise _refusal(error) from None
    tokens = whole[: next((at for at in range(len(whole)) if whole[at : at + len(alone)] == alone), 0)]
    has = tokens[:1] == (start,)
    if start is None or not isinstance(wanted, bool) or has == wanted:
        return tokens
    return (start, *tokens) if wanted else tokens[1:]
