"""The built-in problems: generated, seeded, split by composition."""
