"""The families of built-in problems, one kind a file."""
