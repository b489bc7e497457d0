"""The commands of `sce`, one per file."""
