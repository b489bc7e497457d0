"""GGUF files, run by llama.cpp in a child process."""
