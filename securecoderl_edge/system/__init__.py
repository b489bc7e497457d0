"""Access to the machine: files written atomically, rows of JSON, child processes, the Hugging Face Hub."""
