"""The maths of one update; nothing of folders or phases."""
