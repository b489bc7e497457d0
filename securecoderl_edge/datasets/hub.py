"""Files of a data set on the Hugging Face hub, downloaded into its cache: only for a hub id that the user typed."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

from securecoderl_edge.errors import SceError, UsageError, needs

_DATA = (".jsonl", ".jsonl.gz", ".json", ".parquet")
# What describes a data set and holds none of it.
_NO_DATA = ("dataset_infos.json", "package.json", "state.json", "dataset_info.json")


def download(source: str, pattern: str | None = None) -> list[Path]:
    """The data files of a data set, in name order.

    Args:
        pattern: a shell pattern for their names (``test*``, ``full/train-*``); needed where there are several that
            are not parts of one.

    Raises:
        MissingExtra: huggingface-hub is not installed.
        UsageError: no file of that name, or several to choose from.
        SceError: the hub could not be reached, or has no such data set.
    """
    with needs("huggingface_hub", "hub", f"(or download {source} and name the file)"):
        from huggingface_hub import HfApi, hf_hub_download
        from huggingface_hub.utils import logging
    logging.set_verbosity_error()  # each of its tries would be a line of its own
    try:
        names = sorted(HfApi().list_repo_files(source, repo_type="dataset"))
        chosen = choose(names, pattern, source)
        return [Path(hf_hub_download(source, name, repo_type="dataset")) for name in chosen]
    except UsageError:
        raise
    except Exception as error:  # the hub's client raises many kinds; each means that it cannot be had
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise SceError(f"{source} could not be downloaded from the hub ({reason}); name a file instead") from None


def choose(names: list[str], pattern: str | None, source: str) -> list[str]:
    """Which files of a data set to read; errors as in `download`."""
    data = [name for name in names if name.endswith(_DATA) and name.rpartition("/")[2] not in _NO_DATA]
    if not data:
        raise UsageError(f"{source} holds no {', '.join(_DATA)} file")
    if pattern is not None:
        chosen = [name for name in data if fnmatch.fnmatchcase(name, pattern)]
        if not chosen:
            raise UsageError(f"{source} has no file {pattern!r}; there are {_listed(data)}")
    else:
        chosen = data
    # Parts of one file differ in their numbers alone.
    if len({re.sub(r"\d+", "0", name) for name in chosen}) > 1 and pattern is None:
        raise UsageError(f"{source} has several files; choose with --files PATTERN: {_listed(data)}")
    return chosen


def _listed(names: list[str], most: int = 12) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
