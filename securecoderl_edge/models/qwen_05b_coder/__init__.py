"""The adapter of the policy `qwen-0.5b-coder`; see MODEL_CARD.md in this folder."""
