"""The built-in problems as data, and their splits."""
