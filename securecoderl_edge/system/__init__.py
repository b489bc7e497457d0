"""What the machine gives: files that are whole or absent, rows of JSON, child processes, the hub."""
