"""The table of model families and of what was tested with each, for docs/guides/models.md.

    python tests/supported_models.py          # write it into the page

Every family is tested with all of COLUMNS in `test_supported_models`, which also compares the page with this table.
"""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "guides" / "models.md"
BEGIN, END = "<!-- families: python tests/supported_models.py -->", "<!-- end of families -->"
COLUMNS = ("train", "bench", "generate", "gguf", "onnx")
# Rows as in tiny_families, with published models whose config.json is of that kind.
MODELS = {
    "llama": ("Llama", "DeepSeek-Coder, SmolLM2, Llama 3.2, TinyLlama"),
    "llama-biases": ("Llama with biases", "Granite Code 3B"),
    "mistral": ("Mistral", "Mistral 7B; a GGUF file gets the window as its context"),
    "qwen2": ("Qwen2", "Qwen2.5-Coder"),
    "qwen2-window": ("Qwen2 with windows", "a GGUF file gets the window as its context"),
    "qwen3": ("Qwen3", "Qwen3-0.6B, Qwen3-1.7B"),
    "smollm3": ("SmolLM3", "SmolLM3-3B"),
    "granite": ("Granite 3", "granite-3.3-2b"),
    "granite4": ("Granite 4, dense", "granite-4.0-350m, granite-4.0-1b"),
    "olmo2": ("OLMo 2", "OLMo-2-0425-1B"),
    "gemma3": ("Gemma 3, text", "gemma-3-270m, gemma-3-1b"),
    "other": ("other causal models", "StarCoder2, Phi, CodeGen, GPT-2, LFM2, through transformers' own forward pass"),
}
# What is not possible; tests check that it is refused.
REFUSED = {("other", "gguf"), ("other", "onnx")}


def table() -> str:
    """The table as Markdown."""
    lines = ["| family | works with | for example |", "|---|---|---|"]
    for row, (name, examples) in MODELS.items():
        works = [column for column in COLUMNS if (row, column) not in REFUSED]
        shown = "all" if len(works) == len(COLUMNS) else ", ".join(works)
        lines.append(f"| {name} | {shown} | {examples} |")
    return "\n".join(lines)


def with_table(page: str) -> str:
    """The page with the present table between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
