"""The adapter of the policy `smollm2-rl`; see MODEL_CARD.md in this folder and `benchmarks/packaged_policy.py`."""
