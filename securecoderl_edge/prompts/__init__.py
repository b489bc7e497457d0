"""From a problem to the text that a model is asked with, and from its answer to a program."""
