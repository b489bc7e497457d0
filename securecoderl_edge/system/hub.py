"""The Hugging Face Hub: recognizes repo ids, and downloads from the hub only if the user named one.

Next to `downloads.py` the only module that uses the network.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from pathlib import Path

from securecoderl_edge.errors import SceError, UsageError, first_line, needs

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_DATA = (".jsonl", ".jsonl.gz", ".jsonl.bz2", ".jsonl.xz", ".json", ".parquet", ".arrow", ".csv")
# A name with one of these endings is a missing file, not a repo id.
_FILE_ENDINGS = (*_DATA, ".gguf", ".onnx", ".safetensors", ".bin", ".toml", ".py")
# Files that describe a data set but hold no records.
_NO_DATA = ("dataset_infos.json", "package.json", "state.json", "dataset_info.json")


def is_hub_id(text: str) -> bool:
    """Whether a text is a Hugging Face repo id (``owner/name``) and not a local path, mistyped or not.

    If a folder with the owner's name exists, the text is a path in it. A text that begins with ``runs/`` is a run, even
    if it does not exist yet.
    """
    path = Path(text)
    return (
        bool(_ID.fullmatch(text))
        and path.parts[0] != "runs"
        and not text.endswith(_FILE_ENDINGS)
        and not path.exists()
        and not path.parent.exists()
    )


def download_dataset(source: str, pattern: str | None = None) -> list[Path]:
    """The data files of a data set, in name order.

    Args:
        pattern: a shell pattern for their names (``test*``, ``full/train-*``); required if there are several files that
            are not parts of one.

    Raises:
        MissingExtra: huggingface-hub is not installed.
        UsageError: no file of that name, or several to choose from.
        SceError: the hub could not be reached, or has no such data set.
    """
    with needs("huggingface_hub", "hub", f"(or download {source} yourself and give the file)"):
        from huggingface_hub import HfApi, hf_hub_download
        from huggingface_hub.utils import logging
    logging.set_verbosity_error()  # it would log each attempt
    try:
        names = sorted(HfApi().list_repo_files(source, repo_type="dataset"))
        chosen = choose_files(names, pattern, source)
        return [Path(hf_hub_download(source, name, repo_type="dataset")) for name in chosen]
    except UsageError:
        raise
    except Exception as error:  # the hub's client raises many kinds; each means that the download failed
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise SceError(f"cannot download {source} from the Hugging Face Hub ({reason}); give a file instead") from None


def download_model(name: str, patterns: Sequence[str], download: bool = True) -> Path:
    """The local folder of a model on the hub, with those of its files that have one of ``patterns``.

    Args:
        download: if False, the model must already be downloaded.

    Raises:
        MissingExtra: huggingface-hub is not installed.
        UsageError: the model is not downloaded, and ``download`` is False.
        SceError: the hub could not be reached, or has no such model.
    """
    with needs("huggingface_hub", "train"):
        from huggingface_hub import snapshot_download
    try:
        return Path(snapshot_download(name, allow_patterns=list(patterns), local_files_only=not download))
    except Exception as error:  # the hub's client raises many kinds; each means that the download failed
        if not download:
            raise UsageError(f"{name} is not downloaded yet; sce bench {name} and sce train download it") from None
        raise SceError(
            f"cannot download {name} from the Hugging Face Hub ({first_line(error)}). No such folder here"
        ) from None


def choose_files(names: list[str], pattern: str | None, source: str) -> list[str]:
    """The files of a data set to read; errors as in `download_dataset`."""
    data = [name for name in names if name.endswith(_DATA) and name.rpartition("/")[2] not in _NO_DATA]
    if not data:
        raise UsageError(f"{source}: no data file ({', '.join(_DATA)}) here")
    chosen = [name for name in data if pattern is None or fnmatch.fnmatchcase(name, pattern)]
    if not chosen:
        raise UsageError(f"{source}: no file matches {pattern!r}; choose from {_listed(data)}")
    # Names of the parts of one file differ only in their numbers.
    if pattern is None and len({re.sub(r"\d+", "0", name) for name in chosen}) > 1:
        raise UsageError(f"{source}: several data files; choose with --files PATTERN: {_listed(data)}")
    return chosen


def _listed(names: list[str], most: int = 12) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
