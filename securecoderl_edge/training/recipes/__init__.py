"""Training recipes as TOML files."""
