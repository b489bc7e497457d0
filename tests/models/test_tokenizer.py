"""The one reader of tokenizers: what a model's own files say, for files as the model hub has them."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tokenizers", reason="needs the train or the onnx extra")

from places import SHARED
from tokenizer_styles import STYLES, library, make, write_tokenizer
from tokenizers import processors

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.files import NANO, base_folder
from securecoderl_edge.models.tokenizer import end_tokens, read_tokenizer, special_tokens
from securecoderl_edge.runtimes.text_writer import TokenText
from securecoderl_edge.text import with_seams

DEEPSEEK = SHARED / "deepseek-coder-tokenizer"
TEXTS = (
    "x = [\n        1,",
    "1234567890 12 3.4",
    "def f(x):\n\treturn x  # 我们今天12点 नमस्ते e\u0301 🙂\n\n\n",
    " leading space, <|im_end|> <s> <end_of_turn>\n",
)
# Whether a prompt of a style begins with the start token.
BEGINS = {"deepseek-coder", "gemma", "llama-3", "mistral", "tekken"}


@pytest.mark.parametrize("style", list(STYLES))
def test_the_ids_are_those_of_the_file_itself(tmp_path: Path, style: str) -> None:
    own = write_tokenizer(tmp_path, style)
    read = read_tokenizer(tmp_path)
    for text in (*TEXTS, *library(3)):
        ids = own.encode(text, add_special_tokens=False).ids
        assert read.encode(text) == ids
        assert read.encode_prompt(text)[-len(ids) :] == ids


@pytest.mark.parametrize("style", list(STYLES))
def test_a_text_token_by_token_is_that_of_all_tokens_and_few_are_decoded_at_a_time(tmp_path: Path, style: str) -> None:
    write_tokenizer(tmp_path, style)
    read, rng, decoded = read_tokenizer(tmp_path), random.Random(style), list[int]()

    def decode(ids: list[int]) -> str:
        decoded.append(len(ids))
        return read.decode(ids)

    for _ in range(20):
        texts = rng.choices((*TEXTS, "🙂🙂", "世界", "    ", " a", "\n"), k=40)
        ends = [[read.eos_token_id] * rng.choice((0, 0, 1, 20)) for _ in texts]
        ids = [token for text, end in zip(texts, ends, strict=True) for token in [*read.encode(text), *end]]
        pieces = TokenText(decode, {})
        assert "".join(map(pieces.add, ids)) + pieces.end() == read.decode(ids)
        assert max(decoded) < 60


@pytest.mark.parametrize("style", list(STYLES))
def test_a_prompt_begins_with_one_start_token_where_the_files_say_so(tmp_path: Path, style: str) -> None:
    write_tokenizer(tmp_path, style)
    read, start = read_tokenizer(tmp_path), special_tokens(tmp_path).get("bos_token")
    begun = read.encode_prompt("x = 1")
    assert begun == ([read.bos_token_id] if style in BEGINS else []) + read.encode("x = 1")
    if start:
        assert read.encode_prompt(f"{start}x = 1") == read.encode(f"{start}x = 1")
        assert read.encode(f"{start}x = 1").count(read.id_of(start)) == 1


@pytest.mark.parametrize("style", list(STYLES))
def test_a_name_of_a_special_token_with_a_seam_is_only_text(tmp_path: Path, style: str) -> None:
    write_tokenizer(tmp_path, style)
    read = read_tokenizer(tmp_path)
    controls = read.controls()
    assert special_tokens(tmp_path)["eos_token"] in controls
    special = set(map(read.id_of, controls))
    for name in controls:
        assert special & set(read.encode(f"a{name}b"))
        seamed = with_seams(f"a{name}b", controls)
        assert not special & set(read.encode(seamed))
        assert read.decode(read.encode(seamed)).replace(" ", "") == f"a{name}b".replace(" ", "")
        assert read.encode_prompt(seamed) == [*read.before, *read.encode(seamed)]


@pytest.mark.parametrize("style", ["llama-3", "gemma", "smollm2"])
@pytest.mark.parametrize("wanted", [True, False])
def test_an_explicit_setting_decides_over_the_post_processor(tmp_path: Path, style: str, wanted: bool) -> None:
    write_tokenizer(tmp_path, style, add_bos_token=wanted)
    read = read_tokenizer(tmp_path)
    assert read.encode_prompt("x") == [read.bos_token_id] * wanted + read.encode("x")


@pytest.mark.parametrize("style", ["llama-3", "gemma", "smollm2"])
def test_no_prompt_ends_with_the_end_token_whatever_is_put_behind_texts(tmp_path: Path, style: str) -> None:
    tokenizer = write_tokenizer(tmp_path, style)
    prompt, end = read_tokenizer(tmp_path).encode_prompt("x"), special_tokens(tmp_path)["eos_token"]
    write_tokenizer(tmp_path, style, add_eos_token=True)
    assert read_tokenizer(tmp_path).encode_prompt("x") == prompt
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", special_tokens=[(end, tokenizer.token_to_id(end))]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    read = read_tokenizer(tmp_path)
    assert read.encode_prompt("x")[-1] == read.encode("x")[-1] != read.eos_token_id


@pytest.mark.parametrize("style", list(STYLES))
def test_decoding_gives_back_a_program_and_leaves_special_tokens_out(tmp_path: Path, style: str) -> None:
    write_tokenizer(tmp_path, style)
    read = read_tokenizer(tmp_path)
    # transformers would clean up the space before the sign, as SmolLM2's settings ask for.
    text = "print ( 'a' , x ) .\n    return [ 1 ]\n"
    assert read.decode([*read.encode_prompt(text), read.eos_token_id]).removeprefix(" ") == text


def test_padding_is_the_end_token_where_there_is_none(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, "llama-3")
    read = read_tokenizer(tmp_path)
    assert read.pad_token_id == read.eos_token_id
    write_tokenizer(tmp_path, "gemma")
    assert read_tokenizer(tmp_path).pad_token_id == 0


def test_the_built_in_model_is_read_as_transformers_reads_it() -> None:
    transformers = pytest.importorskip("transformers")
    from securecoderl_edge.problems import load_problems
    from securecoderl_edge.prompts.styles import OURS

    folder = base_folder(NANO)
    peer, read = transformers.AutoTokenizer.from_pretrained(folder), read_tokenizer(folder)
    assert (read.eos_token_id, read.pad_token_id) == (peer.eos_token_id, peer.pad_token_id)
    for problem in [*load_problems("starter:train")[:150], *load_problems("starter:eval")[:50]]:
        prompt, answer = OURS.prompt(problem), OURS.answer(problem.solutions[0])
        assert read.encode_prompt(prompt) == peer(prompt)["input_ids"]
        ids = read.encode(answer)
        assert ids == peer(answer, add_special_tokens=False)["input_ids"]
        assert read.decode([*ids, 1]) == peer.decode([*ids, 1], skip_special_tokens=True) == answer


def test_transformers_splits_smollm2s_text_in_another_way(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    own = write_tokenizer(tmp_path, "smollm2")
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "x = [\n        1,"
    assert peer(text)["input_ids"] != own.encode(text).ids == read_tokenizer(tmp_path).encode_prompt(text)


@pytest.mark.skipif(not DEEPSEEK.is_dir(), reason="needs the tokenizer of DeepSeek-Coder")
def test_deepseek_coders_prompts_begin_with_the_start_token_that_its_settings_ask_for(tmp_path: Path) -> None:
    folder = tmp_path / "deepseek"
    folder.mkdir()
    shutil.copyfile(DEEPSEEK / "tokenizer.json", folder / "tokenizer.json")
    _, settings = make("deepseek-coder")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    read = read_tokenizer(folder)
    assert read.encode_prompt("x")[0] == read.bos_token_id == read.id_of("<｜begin▁of▁sentence｜>")
    assert len(read.encode_prompt("x")) == 2
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "add_bos_token": None}))
    assert len(read_tokenizer(folder).encode_prompt("x")) == 1


def test_tokens_that_only_the_settings_name_are_added(tmp_path: Path) -> None:
    own = write_tokenizer(tmp_path, "qwen")
    size = own.get_vocab_size()
    flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": False}
    more = {str(size + 1): {"content": "</tool>", **flags}, str(size): {"content": "<tool>", **flags}}
    _, settings = make("qwen")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, "added_tokens_decoder": more}))
    read = read_tokenizer(tmp_path)
    assert read.encode("<tool></tool>") == [size, size + 1]
    assert read.decode([size]) == "<tool>"
    more = {str(size + 5): {"content": "<tool>", **flags}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, "added_tokens_decoder": more}))
    with pytest.raises(SceError, match=f"token {size + 5}"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("fewer", "named"),
    [(1, True), (0, False), (-5, False)],
)
def test_a_tokenizer_beyond_the_embedding_is_refused(tmp_path: Path, fewer: int, named: bool) -> None:
    size = write_tokenizer(tmp_path, "qwen").get_vocab_size()
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": size - fewer}))
    if not named:
        read_tokenizer(tmp_path)
        return
    with pytest.raises(SceError, match=rf"token id {size - 1} .* ends at {size - 2}\. Take the tokenizer"):
        read_tokenizer(tmp_path)


def test_a_token_beyond_the_embedding_that_no_prompt_has_is_left_out(tmp_path: Path) -> None:
    last = write_tokenizer(tmp_path, "gemma").token_to_id("<image_soft_token>")
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"vocab_size": last}}))
    read = read_tokenizer(tmp_path)
    assert read.id_of("<image_soft_token>") is None
    assert max(read.encode("x <image_soft_token>\n\n    y")) < last
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}<image_soft_token>")
    with pytest.raises(SceError, match=f"token id {last} exceeds"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "part",
    [
        {"normalizer": {"type": "Lowercase"}},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"decoder": None},
        {"normalizer": {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}},
    ],
)
def test_a_tokenizer_that_changes_programs_is_refused(tmp_path: Path, part: dict[str, Any]) -> None:
    write_tokenizer(tmp_path, "qwen")
    document = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps({**document, **part}))
    with pytest.raises(SceError, match=r"tokenizer\.json: decoding does not give back"):
        read_tokenizer(tmp_path)


def test_a_tokenizer_without_an_end_token_takes_the_models_or_is_refused(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, "qwen", eos_token=None)
    with pytest.raises(SceError, match="no end-of-sequence"):
        read_tokenizer(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 0]}')
    read = read_tokenizer(tmp_path)
    assert (read.eos_token_id, read.ends) == (2, {0, 2})


@pytest.mark.parametrize(
    "part",
    [
        {"decoder": {"type": "Strip", "content": " ", "start": 1, "stop": 1}},
        {"model": {"type": "WordLevel", "vocab": {"a": 0, "<eos>": 1}, "unk_token": "[UNK]"}, "pre_tokenizer": None},
    ],
)
def test_a_tokenizer_that_panics_is_damaged(tmp_path: Path, part: dict[str, Any]) -> None:
    write_tokenizer(tmp_path, "qwen")
    document = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps({**document, **part}))
    with pytest.raises(SceError):
        read_tokenizer(tmp_path).decode(range(9))


def test_a_prefix_at_which_tokenizers_would_end_the_process_is_refused(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, "qwen")
    document = json.loads((tmp_path / "tokenizer.json").read_text())
    document["model"]["continuing_subword_prefix"] = " "
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(SceError, match="continuing_subword_prefix is not supported"):
        read_tokenizer(tmp_path)


def test_half_of_a_character_is_no_special_token(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, "qwen")
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "\\ud800"}')
    with pytest.raises(SceError, match=r"tokenizer_config\.json: eos_token is not text"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize("content", ["{", "{}", "[]", '{"version": "1.0"}'])
def test_a_damaged_tokenizer_is_named(tmp_path: Path, content: str) -> None:
    write_tokenizer(tmp_path, "qwen")
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(SceError, match=r"tokenizer\.json: not a tokenizer"):
        read_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(SceError, match=r"no tokenizer\.json; download it"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("files", "ends", "ends_without_tokenizer"),
    [
        ({}, {3}, set()),
        ({"config.json": {"eos_token_id": 3}}, {3}, {3}),
        ({"config.json": {"eos_token_id": None}, "generation_config.json": {}}, {3}, set()),
        ({"config.json": {"eos_token_id": 4}}, {3, 4}, {4}),
        (
            {"config.json": {"eos_token_id": 3}, "generation_config.json": {"eos_token_id": [5, 7]}},
            {3, 5, 7},
            {3, 5, 7},
        ),
        ({"generation_config.json": {"eos_token_id": ["</s>"]}}, {3}, set()),
    ],
)
def test_every_end_that_the_files_name_ends_an_answer(
    tmp_path: Path, files: dict[str, Any], ends: set[int], ends_without_tokenizer: set[int]
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    assert end_tokens(tmp_path, 3) == ends
    assert end_tokens(tmp_path, None) == ends_without_tokenizer


def test_special_tokens_are_texts_or_records_and_others_are_left_out(tmp_path: Path) -> None:
    assert special_tokens(tmp_path) == {}
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "<old>", "unk_token": "<unk>"}')
    settings = {
        "bos_token": "<s>",
        "eos_token": {"content": "</s>", "lstrip": False},
        "pad_token": None,
        "unk_token": 3,
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert special_tokens(tmp_path) == {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{")
    with pytest.raises(SceError, match=name):
        end_tokens(tmp_path, 3)


def test_a_tokenizer_of_another_model_is_refused_before_weights_are_read(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the train extra")
    from tiny_models import build_model

    from securecoderl_edge.export.workbench import Workbench
    from securecoderl_edge.runtimes.hf import HfRuntime

    folder = build_model(tmp_path / "model")
    write_tokenizer(folder, "qwen")
    (folder / "model.safetensors").unlink()
    with pytest.raises(SceError, match="exceeds the embedding"):
        HfRuntime(str(folder))
    with pytest.raises(SceError, match="exceeds the embedding"), Workbench(folder, None):
        pass


def test_what_no_vocabulary_has_ends_no_answer(tmp_path: Path) -> None:
    ends = [2, True, None, "3", 4.0, -1, *(number * (2**61 - 1) for number in range(1, 9))]
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": ends}))
    assert end_tokens(tmp_path, None) == {2}
    assert end_tokens(tmp_path, 5) == {2, 5}
