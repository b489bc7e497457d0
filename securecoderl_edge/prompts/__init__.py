"""From a problem to its prompt, and from a completion to its program."""
