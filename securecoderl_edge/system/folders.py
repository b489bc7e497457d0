"""Folders of the user that this program writes to; XDG_CACHE_HOME and XDG_CONFIG_HOME move them."""

from __future__ import annotations

from pathlib import Path

_NAME = "securecoderl-edge"


def cache_folder() -> Path:
    """The folder of models and converted models: ``~/.cache/securecoderl-edge`` on Linux."""
    import platformdirs

    return platformdirs.user_cache_path(_NAME, appauthor=False)


def config_file() -> Path:
    """The file with the user's defaults: ``~/.config/securecoderl-edge/config.toml`` on Linux."""
    import platformdirs

    return platformdirs.user_config_path(_NAME, appauthor=False) / "config.toml"
