"""Runtimes for models, behind one protocol; `opening` loads one, and only then imports what is heavy."""
