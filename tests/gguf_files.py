"""GGUF files made of others: with other types of weights, changed metadata, or damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def rewritten(source: Path, out: Path, kind: str | None = None, **changes: Any) -> Path:
    """Write a copy of a float file, with its matrices in ``kind``.

    Args:
        changes: metadata under other values, with ``__`` for the dots; None leaves a key out.
    """
    import gguf

    reader = gguf.GGUFReader(source)
    changed = {name.replace("__", "."): value for name, value in changes.items()}
    architecture = changed.pop("general.architecture", reader.fields["general.architecture"].contents())
    writer = gguf.GGUFWriter(out, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = changed.pop(name, field.contents())
        if value is not None:
            writer.add_key_value(name, value, field.types[0], field.types[-1] if len(field.types) > 1 else None)
    for name, value in changed.items():
        kind_of_number = gguf.GGUFValueType.UINT32 if type(value) is int else gguf.GGUFValueType.get_type(value)
        items = gguf.GGUFValueType.get_type(value[0]) if isinstance(value, list) else None
        writer.add_key_value(name, value, kind_of_number, items)
    # Norms first: quantizers do not keep the order, and the first tensor says nothing about the others.
    for tensor in sorted(reader.tensors, key=lambda tensor: len(tensor.shape)):
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if kind is not None and values.ndim == 2:
            number = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(tensor.name, gguf.quants.quantize(values, number), raw_dtype=number)
        else:
            writer.add_tensor(tensor.name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def lora(path: Path, **texts: str) -> Path:
    """Write a GGUF file that calls itself an adapter; ``texts`` are metadata, with ``__`` for the dots."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type(gguf.GGUFType.ADAPTER)
    for name, value in texts.items():
        writer.add_string(name.replace("__", "."), value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
