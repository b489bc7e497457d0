"""The messages of a chat request, and the prompt that a model's template makes of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.prompts.chat import ChatTemplate
from securecoderl_edge.serving.faults import Fault, invalid
from securecoderl_edge.serving.fields import read_body

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
# Of one message: calls of tools.
_MOST_CALLS = 64

# ``role`` and ``content``, and perhaps ``name`` and ``tool_calls``.
Message = Mapping[str, Any]


def read_messages(body: Mapping[str, Any]) -> tuple[Message, ...]:
    """The messages of a body, checked; roles are those that templates know, and arguments of calls are objects.

    Raises:
        Fault: one is malformed, or all are empty.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise invalid("messages", 'must be a list of objects with "role" and "content"')
    read = tuple(_message(message, f"messages[{index}]") for index, message in enumerate(messages))
    if not any(message["content"].strip() for message in read):
        raise invalid("messages", "are all empty")
    return read


def as_text(message: Message) -> Message:
    """A message for a template that knows no tools: calls and results become text."""
    content = message["content"]
    if message["role"] == "tool":
        name = f" of {message['name']}" if message.get("name") else ""
        return {"role": "user", "content": f"Result{name}:\n{content}"}
    calls = [json.dumps(call["function"], ensure_ascii=False) for call in message.get("tool_calls", ())]
    return {"role": message["role"], "content": "\n".join(filter(None, (content, *calls)))}


def size_of(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> int:
    """Characters of messages and tools, which their prompt has as well.

    Raises:
        Fault: one is nested too deeply.
    """
    more = [message[key] for message in messages for key in ("name", "tool_calls") if key in message]
    try:
        records = json.dumps([*more, *tools], ensure_ascii=False) if more or tools else ""
    except RecursionError:
        raise invalid("messages", "or tools are nested too deeply") from None
    return sum(len(message["content"]) for message in messages) + len(records)


def prompt_of(chat: ChatTemplate, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None) -> str:
    """The prompt for the next answer: of the messages as they are if the template takes them, else arranged for it.

    Raises:
        SceError: the template takes them in no arrangement.
        MissingExtra: jinja2 is not installed.
    """
    failure: SceError | None = None
    for arranged in _arrangements(messages):
        try:
            prompt = chat.converse(arranged, tools)
        except SceError as error:
            failure = failure or error
            continue
        # Some templates leave messages out whose place they do not expect.
        expected = [chat.as_text(each["content"]).strip() for each in arranged if each["role"] in ("system", "user")]
        if _has_all(prompt, expected):
            return prompt
        failure = failure or SceError("the chat template leaves out a message; send system messages first")
    assert failure is not None
    raise failure


def _has_all(prompt: str, texts: Sequence[str]) -> bool:
    """Whether a prompt has all texts. Each is first looked for behind the one before: there may be very many."""
    place = 0
    for text in texts:
        found = prompt.find(text, place)
        place = found if found >= 0 else prompt.find(text)
        if place < 0:
            return False
    return True


def _arrangements(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """The messages as they are; with one system message, first; with its text in the first message of the user.

    In the last two, neighbors of one role are joined.
    """
    yield list(messages)
    system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
    others = _joined([message for message in messages if message["role"] != "system"])
    if system and others:
        yield [{"role": "system", "content": system}, *others]
    if not others or others[0]["role"] != "user":
        others = [{"role": "user", "content": ""}, *others]
    first = "\n\n".join(filter(None, (system, others[0]["content"])))
    yield [{**others[0], "content": first}, *others[1:]]


def _joined(messages: Sequence[Message]) -> list[Message]:
    joined: list[Message] = []
    for message in messages:
        is_plain = set(message) == {"role", "content"}
        if joined and is_plain and set(joined[-1]) == {"role", "content"} and joined[-1]["role"] == message["role"]:
            joined[-1] = {**message, "content": f"{joined[-1]['content']}\n\n{message['content']}"}
        else:
            joined.append(message)
    return joined


def _message(message: Any, where: str) -> Message:
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        raise invalid(where, f'needs a "role": {", ".join(ROLES)}')
    role = {"developer": "system", "function": "tool"}.get(message["role"], message["role"])
    calls = message.get("tool_calls") or []
    if not calls and message.get("function_call") is not None:  # the older form
        calls = [{"function": message["function_call"]}]
    content = message.get("content")
    if content is None and role in ("assistant", "tool"):  # a call alone, or the result of a function without one
        content = ""
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        texts = [part["text"] for part in content if isinstance(part.get("text"), str)]
        content = "".join(texts) if len(texts) == len(content) else None
    if not isinstance(content, str):
        raise invalid(where, 'needs a "content" of text')
    read: dict[str, Any] = {"role": role, "content": content}
    if role == "tool" and isinstance(message.get("name"), str):
        read["name"] = message["name"]
    if calls:
        if role != "assistant" or not isinstance(calls, list) or len(calls) > _MOST_CALLS:
            raise invalid(where, f'may have "tool_calls" of the role assistant, at most {_MOST_CALLS}')
        read["tool_calls"] = [_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)]
    return read


def _call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise invalid(where, 'needs a "function" with a "name"')
    arguments = function.get("arguments") or "{}"
    if isinstance(arguments, str):
        try:  # as strictly as the body: text that is not Unicode would end the model's process
            arguments = read_body((arguments.strip() or "{}").encode())
        except Fault:
            raise invalid(where, 'has "arguments" that are not a JSON object') from None
    if not isinstance(arguments, dict):
        raise invalid(where, 'has "arguments" that are not an object')
    return {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
