"""The weights of the built-in base model; see MODEL_CARD.md in this folder and `benchmarks/starter/pretrain.py`."""
