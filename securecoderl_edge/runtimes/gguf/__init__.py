"""GGUF files: read by us, run by llama.cpp in a child process."""
