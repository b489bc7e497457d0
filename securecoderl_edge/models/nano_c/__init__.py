"""The weights of the built-in base model for C; see MODEL_CARD.md in this folder and `training/pretrain.py`."""
