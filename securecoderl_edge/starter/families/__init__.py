"""All families of starter problems, in a fixed order."""
