"""The weights of the built-in base model; see MODEL_CARD.md beside this file and `training/pretrain.py`."""
