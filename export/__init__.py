"""From a trained adapter to one verified file."""
