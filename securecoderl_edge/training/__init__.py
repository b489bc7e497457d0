"""Training: from settings to a finished policy."""
