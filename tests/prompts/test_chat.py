"""Chat templates: rendered as transformers renders them, in a sandbox, and read from where models keep them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dataset_files import needs_shared
from places import SHARED

from securecoderl_edge.errors import SceError
from securecoderl_edge.prompts.chat import ChatTemplate, read_chat_template
from securecoderl_edge.prompts.styles import choose_format

CHATML = (
    "{%- if messages[0]['role'] != 'system' %}\n"
    "    {{- '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}\n{%- endif %}\n"
    "{%- for message in messages %}\n"
    "    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n"
)
TURNS = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}### Instruction:\n"
    "{{ message['content'] }}\n{% else %}### Response:\n{{ message['content'] }}\n{{ eos_token }}\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}### Response:\n{% endif %}"
)
TOKENS = {"bos_token": "<s>", "eos_token": "<|im_end|>"}


def test_a_question_stands_where_the_template_puts_it() -> None:
    asked = ChatTemplate(CHATML, TOKENS).ask("Add {{ 7 * 7 }}.")
    assert asked == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nAdd {{ 7 * 7 }}.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ChatTemplate(TURNS, TOKENS).ask("Add.") == "<s>### Instruction:\nAdd.\n### Response:\n"


@pytest.mark.parametrize("source", [CHATML, TURNS])
def test_transformers_renders_the_same(source: str, tiny_model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.bos_token = "<eos>"
    messages = [{"role": "user", "content": "Sort  the\nwords."}]
    expected = tokenizer.apply_chat_template(messages, chat_template=source, tokenize=False, add_generation_prompt=True)
    template = ChatTemplate(source, {"bos_token": "<eos>", "eos_token": "<eos>"})
    assert template.ask("Sort  the\nwords.") == expected


@needs_shared
def test_the_template_beside_a_real_tokenizer_is_rendered_as_transformers_does() -> None:
    transformers = pytest.importorskip("transformers")
    folder = SHARED / "deepseek-coder-tokenizer"
    template = read_chat_template(folder)
    assert template is not None
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "user", "content": "Add."}]
    assert template.ask("Add.") == tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


@pytest.mark.parametrize(
    ("source", "tokens", "expected"),
    [
        (CHATML, {"eos_token": "<|im_end|>"}, True),
        (CHATML, {"eos_token": "<|endoftext|>"}, False),
        (CHATML, {}, False),
        (TURNS, TOKENS, True),
    ],
)
def test_a_model_was_trained_to_chat_if_its_end_of_sequence_ends_answers(
    source: str, tokens: dict[str, str], expected: bool
) -> None:
    assert ChatTemplate(source, tokens).ends_answers() is expected


def test_what_a_model_was_trained_to_do_is_not_guessed_from_a_template_that_fails() -> None:
    broken = ChatTemplate("{{ undefined.field }}", TOKENS, "template.jinja")
    with pytest.raises(SceError, match=r"template.jinja: cannot render the chat template .* --prompt-style"):
        choose_format("auto", None, broken)
    assert choose_format("auto", "stdin", broken).style == choose_format("stdin", None, broken).style == "stdin"


def test_the_tag_that_training_code_finds_answers_by_adds_nothing() -> None:
    source = "{% for m in messages %}{% generation %}<{{ m.content }}>{% endgeneration %}{% endfor %}"
    assert ChatTemplate(source).ask("Add.") == "<Add.>"


def test_a_template_that_is_not_utf_8_is_an_error_with_its_name(tmp_path: Path) -> None:
    write(tmp_path, {})
    (tmp_path / "chat_template.jinja").write_bytes("é".encode("latin-1"))
    with pytest.raises(SceError, match=r"chat_template.jinja: not UTF-8 text"):
        read_chat_template(tmp_path)


def write(folder: Path, settings: dict[str, Any], separate: str | None = None) -> Path:
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    if separate is not None:
        (folder / "chat_template.jinja").write_text(separate, encoding="utf-8")
    return folder


def test_a_template_is_read_from_its_own_file_or_the_tokenizer_s_settings(tmp_path: Path) -> None:
    assert read_chat_template(write(tmp_path, {"eos_token": "e"})) is None
    inside = read_chat_template(
        write(tmp_path, {"chat_template": "a", "bos_token": {"content": "b"}, "eos_token": "e"})
    )
    assert inside is not None
    assert (inside.source, inside.tokens) == ("a", {"bos_token": "b", "eos_token": "e"})
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    several = read_chat_template(write(tmp_path, {"chat_template": named}))
    assert several is not None
    assert several.source == "d"
    separate = read_chat_template(write(tmp_path, {"chat_template": "a"}, separate="own"))
    assert separate is not None
    assert separate.source == "own"


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no') }}",
        "{% for %}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% for number in range(1000000000) %}x{% endfor %}",
        "{{ self.__init__.__globals__ }}",
        "{{ 1 / 0 }}",
    ],
)
def test_a_hostile_or_broken_template_is_an_error_of_one_sentence(source: str) -> None:
    with pytest.raises(SceError, match=r"^somewhere: cannot render the chat template"):
        ChatTemplate(source, TOKENS, "somewhere").ask("Add.")
