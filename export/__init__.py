"""Export of a trained adapter or base model to one verified file."""
