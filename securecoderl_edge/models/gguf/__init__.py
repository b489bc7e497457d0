"""GGUF files as models: what their headers say, and their weights and tokenizer as a Hugging Face folder."""
