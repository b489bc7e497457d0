"""A base model: its files, shape, weights, layers and adapters, and sampling tokens from it."""
