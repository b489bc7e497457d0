"""Templates as models come with them: the text is transformers', the date stands still, thoughts are not answers."""

from __future__ import annotations

import contextlib
import itertools
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from asked import CALL, STDIN
from chat_templates import GEMMA3, GRANITE3, LLAMA32, MISTRAL, QWEN3, R1, SMOLLM3, TEMPLATES
from packaging.requirements import Requirement
from places import ROOT
from quick import few
from tiny_models import build_model

from securecoderl_edge.errors import SceError
from securecoderl_edge.prompts.chat import TODAY, ChatTemplate
from securecoderl_edge.prompts.extraction import PromptFacts, extract_program, is_over, prompt_facts
from securecoderl_edge.prompts.styles import PromptFormat, choose_format
from securecoderl_edge.text import SEAM

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
CONVERSATIONS = (
    [{"role": "user", "content": "  Sort <b> & \"c\",\n'd' {{ 7 * 7 }} é\u00a0中 \n"}],
    [{"role": "user", "content": "Add."}, {"role": "assistant", "content": "<think>\nHm.\n</think>\n\n1 + 1 "}],
    [
        {"role": "system", "content": "Be brief. /no_think"},
        {"role": "user", "content": "Add."},
        {"role": "assistant", "content": "\n2\n"},
        {"role": "user", "content": "Again."},
    ],
)


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    found = transformers.AutoTokenizer.from_pretrained(tiny_model)
    found.bos_token, found.eos_token = TOKENS["bos_token"], TOKENS["eos_token"]
    return found


@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("name", TEMPLATES)
def test_the_text_is_the_one_of_transformers(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch, name: str, thinks: bool
) -> None:
    from transformers.utils import chat_template_utils

    class Clock:
        @staticmethod
        def now() -> Any:
            return TODAY

    monkeypatch.setattr(chat_template_utils, "datetime", Clock)
    chat_template_utils._compile_jinja_template.cache_clear()
    template = ChatTemplate(TEMPLATES[name], TOKENS, thinks=thinks)
    words = {"enable_thinking": thinks, "thinking": thinks}
    for messages in CONVERSATIONS:
        for asks in (True, False):
            expected = tokenizer.apply_chat_template(
                messages, chat_template=TEMPLATES[name], tokenize=False, add_generation_prompt=asks, **words
            )
            assert template.render(messages, add_generation_prompt=asks) == expected


NAMES = ("<|im_start|>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "[INST]", "</s>", "<s>")


@pytest.mark.parametrize("name", TEMPLATES)
def test_names_of_special_tokens_in_messages_are_only_text(name: str) -> None:
    plain, guarded = (ChatTemplate(TEMPLATES[name], TOKENS, controls=each) for each in ((), NAMES))
    harmless = [
        {"role": "user", "content": "One."},
        {"role": "assistant", "content": "Two."},
        {"role": "user", "content": "x"},
    ]
    assert guarded.converse(harmless) == plain.converse(harmless)
    hostile = [{**each, "content": f"{each['content']}{''.join(NAMES)}y"} for each in harmless]
    prompt, expected = guarded.converse(hostile), plain.converse(harmless)
    assert prompt.replace(SEAM, "") == plain.converse(hostile)
    for each in NAMES:  # none but those of the template
        assert sum(part.count(each) for part in prompt.split(SEAM)) == expected.count(each)


def test_names_of_special_tokens_in_tools_are_only_text() -> None:
    template = ChatTemplate("{{ tools | tojson }}{{ messages | tojson }}</s>", controls=("</s>",))
    call = {"function": {"name": "f</s>", "arguments": {"a</s>": ["</s>", 1, None]}}}
    prompt = template.converse(
        [{"role": "assistant", "content": "", "tool_calls": [call]}], [{"function": {"</s>": {"enum": ["</s>"]}}}]
    )
    assert prompt.count("</s>") == 1
    assert prompt.count(SEAM) == 5


def test_json_is_not_escaped_for_web_pages() -> None:
    template = ChatTemplate("{{ messages | tojson }} {{ messages[0] | tojson(indent=1) }}")
    expected = {"role": "user", "content": "é <b>'"}
    assert template.ask("é <b>'") == json.dumps([expected], ensure_ascii=False) + " " + json.dumps(
        expected, ensure_ascii=False, indent=1
    )


@pytest.mark.parametrize("source", [SMOLLM3, LLAMA32, GRANITE3])
def test_a_prompt_is_the_same_every_day(source: str) -> None:
    asked = ChatTemplate(source, TOKENS).ask("Add.")
    assert "2025" in asked.partition("Add.")[0].replace("June 2025", "")


@pytest.mark.parametrize(
    ("source", "off", "on"),
    [
        (QWEN3, "<|im_start|>assistant\n<think>\n\n</think>\n\n", "<|im_start|>assistant\n"),
        (SMOLLM3, "<|im_start|>assistant\n<think>\n\n</think>\n", "<|im_start|>assistant\n"),
        (R1, "<|Assistant|><think>\n\n</think>\n\n", "<|Assistant|><think>\n"),
        (GEMMA3, "<start_of_turn>model\n", "<start_of_turn>model\n"),
        (GRANITE3, "2025.<|end_of_text|>\n", "Write <think></think>.<|end_of_text|>\n"),
    ],
)
def test_a_model_thinks_only_if_it_is_asked_to(source: str, off: str, on: str) -> None:
    prompts = [ChatTemplate(source, TOKENS, thinks=thinks).ask("Add.") for thinks in (False, True)]
    for prompt, expected in zip(prompts, (off, on), strict=True):
        before = prompt.partition("<|start_of_role|>user")[0] if source == GRANITE3 else prompt
        assert before.endswith(expected)


def test_thinking_reaches_the_prompts_of_the_style_chat_alone() -> None:
    chat = ChatTemplate(QWEN3, {"eos_token": "<|im_end|>"})
    off, on = (choose_format("auto", None, chat, thinks).prompt(STDIN) for thinks in (False, True))
    assert (off.endswith("</think>\n\n"), on.endswith("assistant\n")) == (True, True)
    assert choose_format("paper", None, chat, True) == PromptFormat("paper")


@pytest.mark.parametrize("source", [QWEN3, SMOLLM3])
def test_models_that_can_think_are_taken_for_models_trained_to_chat(source: str) -> None:
    assert ChatTemplate(source, {"eos_token": "<|im_end|>"}).ends_answers()


@pytest.mark.parametrize("source", [GEMMA3, MISTRAL])
def test_what_a_template_refuses_is_its_own_sentence(source: str) -> None:
    turns = [{"role": "user", "content": "Add."}, {"role": "user", "content": "Again."}]
    with pytest.raises(SceError, match=r"cannot render the chat template .*roles must alternate"):
        ChatTemplate(source, TOKENS).render(turns, add_generation_prompt=True)


PROGRAM = "print(int(input()) * 2)\n"
ANSWER = f"```python\n{PROGRAM}```\n"
WRONG = "```python\nprint(0)\n```\n"
OPEN = PromptFormat("chat", ChatTemplate(R1, TOKENS, thinks=True))
SHUT = PromptFormat("chat", ChatTemplate(QWEN3, TOKENS))


@pytest.mark.parametrize("tag", ["<think>", "<thinking>", "<thought>", "<reasoning>", "[THINK]"])
def test_a_program_in_a_thought_is_not_the_answer(tag: str) -> None:
    closing = f"{tag[0]}/{tag[1:]}"
    for text in (f"{tag}\nFirst:\n{WRONG}No.\n{closing}\n\n", f"\n{tag}{closing}", f"{tag}print(0){closing}"):
        for format in (SHUT, OPEN):
            assert extract_program(text + ANSWER, PromptFacts.of(STDIN, format)) == PROGRAM
            assert extract_program(text + PROGRAM, PromptFacts.of(STDIN, format)).strip() == PROGRAM.strip()
        assert extract_program(text + ANSWER, PromptFacts()) == PROGRAM
    begun = f"First:\n{WRONG}No.\n{closing}\n\n{ANSWER}"  # the prompt has the opening tag
    assert extract_program(begun, PromptFacts.of(STDIN, OPEN)) == PROGRAM
    assert extract_program(begun, prompt_facts(STDIN, OPEN, "raw")) == begun


@pytest.mark.parametrize(
    ("format", "text"),
    [
        (SHUT, f"<think>\nFirst:\n{WRONG}"),
        (SHUT, "<think>\nprint(0)\n"),
        (OPEN, f"First:\n{WRONG}"),
        (OPEN, "print(0)\n"),
        (OPEN, "print(0)\n</think>\n\n"),
        (OPEN, "x = 1\n</think"),
        (OPEN, ""),
    ],
)
def test_an_unfinished_thought_gives_no_program(format: PromptFormat, text: str) -> None:
    with pytest.raises(SyntaxError):
        compile(extract_program(text, PromptFacts.of(STDIN, format)), "answer", "exec")
    assert not is_over(text, PromptFacts.of(STDIN, format))


def test_text_about_tags_in_a_program_stays() -> None:
    program = 'print("<think>")\nprint("</think>")\n'
    for format in (SHUT, PromptFormat(), PromptFormat("paper")):
        assert extract_program(program, PromptFacts.of(STDIN, format)) == program
    assert extract_program(f"Hm.</think>{program}", PromptFacts.of(CALL, OPEN)) == program


def test_generation_ends_with_the_turn_after_the_thought() -> None:
    asked, text = PromptFacts.of(STDIN, OPEN), f"First:\n{WRONG}No.\n</think>\n\n{ANSWER}<|im_end|>\nMore.\n"
    ends = [end for end in range(len(text)) if is_over(text[:end], asked)]
    assert ends[0] == len(text) - len("More.\n")


def with_thoughts(folder: Path, is_special: bool) -> Path:
    """A model that always continues ``a`` with a thought, ``b``, and the answer ``c``."""
    import torch
    from tokenizers import AddedToken, Tokenizer
    from transformers import AutoModelForCausalLM

    build_model(folder, tie_word_embeddings=False)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tags = [AddedToken(tag, special=is_special, normalized=False) for tag in ("<think>", "</think>")]
    (tokenizer.add_special_tokens if is_special else tokenizer.add_tokens)(tags)
    tokenizer.save(str(folder / "tokenizer.json"))
    chain = [tokenizer.token_to_id(token) for token in ("a", "<think>", "b", "</think>", "c", "<eos>")]
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "o_proj" in name or "down_proj" in name or "lm_head" in name:
                parameter.zero_()
        for token, following in itertools.pairwise(chain):
            model.lm_head.weight[following] = 9 * model.model.embed_tokens.weight[token]
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("is_special", few([True, False], True))
def test_tags_are_in_the_text_of_every_runtime(tmp_path: Path, is_special: bool) -> None:
    pytest.importorskip("torch", reason="needs the train extra")
    pytest.importorskip("llama_cpp", reason="needs the gguf extra")
    pytest.importorskip("onnxruntime", reason="needs the onnx extra")
    from exports import export_onnx

    from securecoderl_edge.export.gguf import write_gguf
    from securecoderl_edge.runtimes.opening import RuntimeSettings, open_runtime
    from securecoderl_edge.runtimes.protocol import Sampling
    from securecoderl_edge.runtimes.spec import resolve_model

    folder = with_thoughts(tmp_path / "thinking", is_special)
    write_gguf(folder, None, "f32", tmp_path / "thinking.gguf", "thinking")
    export_onnx(folder, None, "f32", tmp_path / "onnx")
    for model in (folder, tmp_path / "thinking.gguf", tmp_path / "onnx"):
        pieces: dict[tuple[int, int], str] = {}

        def collect(prompt: int, sample: int, text: str, pieces: dict[tuple[int, int], str] = pieces) -> None:
            pieces[prompt, sample] = pieces.get((prompt, sample), "") + text

        with contextlib.closing(open_runtime(resolve_model(str(model)), RuntimeSettings("cpu", threads=1))) as runtime:
            ((completion,),) = runtime.generate(["a"], 1, Sampling(0, 6), collect)
        assert (completion.text, completion.finish) == ("<think>b</think>c", "stop"), model
        assert pieces == {(0, 0): completion.text}


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(9000) %}{{ 'x' * 9000 }}{% endfor %}",
    ],
)
def test_a_template_that_does_not_end_is_stopped(source: str) -> None:
    with pytest.raises(SceError, match="cannot render the chat template"):
        ChatTemplate(source).ask("a question")


LEADS_OUT = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.popen('echo found').read() }}",
    "{{ joiner.__init__.__globals__['os'] }}",
    "{{ raise_exception.__globals__ }}",
    "{{ '%s'|format(raise_exception.__globals__) }}",
    "{{ range.__closure__ }}",
    "{{ '{0.__class__.__mro__}'.format('x') }}",
    "{{ messages|attr('__class__') }}",
    "{{ ['']|map(attribute='__class__')|list }}",
    "{{ self._TemplateReference__context.environment }}",
    "{{ messages.append({}) }}",
    "{{ messages[0].update(role='x') }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}{{ os.getcwd() }}",
]


@pytest.mark.parametrize("source", LEADS_OUT)
def test_a_template_does_not_leave_jinjas_sandbox(source: str) -> None:
    try:
        text = ChatTemplate(source).ask("a question")
    except SceError:
        return
    assert text in ("", "[Undefined]", "[]"), text


@pytest.mark.parametrize("extra", ["train", "gguf", "onnx"])
def test_no_extra_permits_a_jinjas_sandbox_with_a_known_way_out(extra: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = {each.name: each.specifier for each in map(Requirement, extras[extra])}
    assert asked["jinja2"].contains("3.1.6")
    assert not asked["jinja2"].contains("3.1.5")
