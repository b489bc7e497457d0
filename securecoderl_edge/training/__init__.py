"""From settings to a finished policy."""
