"""What is taken for the name of something on the Hugging Face hub: the only names that may ask another machine."""

from __future__ import annotations

import re
from pathlib import Path

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
# What ends like one of these is a file that is missing, not a hub id.
_FILE_ENDINGS = (
    *(".gguf", ".onnx", ".safetensors", ".bin", ".json", ".jsonl", ".jsonl.gz", ".parquet", ".toml", ".py", ".csv"),
)


def is_hub_id(text: str) -> bool:
    """Whether a text is ``owner/name`` and neither on disk nor the slip of a path.

    Where a folder of the owner's name exists, something in it was meant; what begins with ``runs/`` is a run, also
    where there is none yet.
    """
    path = Path(text)
    return (
        bool(_ID.fullmatch(text))
        and path.parts[0] != "runs"
        and not text.endswith(_FILE_ENDINGS)
        and not path.exists()
        and not path.parent.exists()
    )
