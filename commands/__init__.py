"""The commands of `sce`, one a file."""
