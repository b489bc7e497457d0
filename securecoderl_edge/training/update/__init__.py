"""The math of one update, independent of folders and phases."""
