"""The weights of the built-in base model for C; see MODEL_CARD.md here and `benchmarks/starter/pretrain.py`."""
