"""What a programming language asks of compiling, running, parsing and prompts; a language is a value in one table."""
