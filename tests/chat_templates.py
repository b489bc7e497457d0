"""Chat templates with the features of those that well-known models come with, reduced to what decides their text."""

from __future__ import annotations

# Thoughts of earlier answers are dropped; without thinking, the answer begins with an empty thought.
QWEN3 = """\
{%- if tools %}{{- '<|im_start|>system\\n# Tools\\n' }}{% for tool in tools %}{{- tool | tojson }}{% endfor %}
{{- '<|im_end|>\\n' }}{%- endif %}
{%- set last = namespace(question=messages|length - 1, found=false) %}
{%- for message in messages[::-1] %}
    {%- if message.role == 'user' and not last.found %}
        {%- set last.question = messages|length - 1 - loop.index0 %}
        {%- set last.found = true %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}
    {%- else %}{%- set content = '' %}{%- endif %}
    {%- if message.role != 'assistant' %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- else %}
        {%- set thought = '' %}
        {%- if '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > last.question and (loop.last or thought) %}
            {{- '<|im_start|>assistant\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content }}
        {%- else %}
            {{- '<|im_start|>assistant\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""

# Thinking is the default, a word in the system message switches it off; answers are marked for training code.
SMOLLM3 = """\
{%- if enable_thinking is not defined %}{%- set enable_thinking = true %}{%- endif %}
{%- set mode = '/think' if enable_thinking else '/no_think' %}
{%- set about = '' %}
{%- if messages[0].role == 'system' %}
    {%- set about = messages[0].content %}
    {%- if '/no_think' in about %}{%- set mode = '/no_think' %}{%- endif %}
    {%- set about = about.replace('/no_think', '').replace('/think', '').rstrip() %}
{%- endif %}
{{- '<|im_start|>system\\n## Metadata\\n\\nKnowledge Cutoff Date: June 2025\\n' }}
{{- 'Today Date: ' + strftime_now('%d %B %Y') + '\\nReasoning Mode: ' + mode + '\\n\\n' + about + '<|im_end|>\\n' }}
{%- for message in messages %}
    {%- if message.role == 'user' %}{{ '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {% generation %}
        {%- if mode == '/think' %}{{ '<|im_start|>assistant\\n' + message.content.lstrip('\\n') + '<|im_end|>\\n' }}
        {%- else %}{{ '<|im_start|>assistant\\n<think>\\n\\n</think>\\n' + message.content + '<|im_end|>\\n' }}
        {%- endif %}
        {% endgeneration %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {%- if mode == '/think' %}{{ '<|im_start|>assistant\\n' }}
    {%- else %}{{ '<|im_start|>assistant\\n<think>\\n\\n</think>\\n' }}{%- endif %}
{%- endif %}"""

# The date stands in the system message, its own fallback where no clock is given; tools are JSON.
LLAMA32 = """\
{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}{%- set system_message = "" %}{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}{{- "Environment: ipython\\n" }}{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\nToday Date: " + date_string + "\\n\\n" + system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""

# A system message goes before the first question; roles must alternate, and answers are the model's.
GEMMA3 = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set before = messages[0]['content'] + '\\n\\n' -%}{%- set turns = messages[1:] -%}
{%- else -%}{%- set before = "" -%}{%- set turns = messages -%}{%- endif -%}
{%- for message in turns -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (before if loop.first else "") }}
    {%- if message['content'] is string -%}{{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}{{ item['text'] | trim }}{%- endfor -%}
    {%- else -%}{{ raise_exception("Invalid content type") }}{%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}"""

# `thinking` switches thoughts on; documents and tools are none unless they are given.
GRANITE3 = """\
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] %}{%- set turns = messages[1:] %}
{%- else %}
    {%- set system_message = "Knowledge Cutoff Date: April 2024.\\nToday's Date: " + strftime_now('%B %d, %Y') + "." %}
    {%- if tools and documents %}{%- set system_message = system_message + " Use the tools and documents." %}
    {%- elif tools is not none %}{%- set system_message = system_message + " Use the tools." %}{%- endif %}
    {%- if thinking %}{%- set system_message = system_message + " Write <think></think>." %}{%- endif %}
    {%- set turns = messages %}
{%- endif %}
{{- '<|start_of_role|>system<|end_of_role|>' + system_message + '<|end_of_text|>\\n' }}
{%- for message in turns %}
    {{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] + '<|end_of_text|>\\n' }}
    {%- if loop.last and add_generation_prompt %}
        {{- '<|start_of_role|>assistant' }}
        {%- if controls %}{{- ' ' + controls | tojson }}{%- endif %}
        {{- '<|end_of_role|>' }}
    {%- endif %}
{%- endfor %}"""

MISTRAL = """\
{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}{%- set loop_messages = messages[1:] %}
{%- else %}{%- set loop_messages = messages %}{%- endif %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
        {{- raise_exception("After the optional system message, roles must alternate user/assistant") }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}{{- "[INST] " + message["content"] + "[/INST]" }}{%- endif %}
    {%- elif message["role"] == "assistant" %}{{- " " + message["content"]|trim + eos_token }}
    {%- else %}{{- raise_exception("Only user, system and assistant roles are supported") }}{%- endif %}
{%- endfor %}"""

# Every answer begins with a thought; those of earlier turns are dropped.
R1 = """\
{{ bos_token }}{% for message in messages %}
{%- if message.role == 'user' %}{{ '<|User|>' + message.content }}
{%- elif message.role == 'assistant' %}{{ '<|Assistant|>' + message.content.split('</think>')[-1] + eos_token }}
{%- endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|Assistant|><think>\\n' }}{%- endif %}"""

TEMPLATES = {
    "qwen3": QWEN3, "smollm3": SMOLLM3, "llama32": LLAMA32, "gemma3": GEMMA3, "granite3": GRANITE3,
    "mistral": MISTRAL, "r1": R1,
}  # fmt: skip
