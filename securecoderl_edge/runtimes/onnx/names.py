"""Names in an exported ONNX folder, for those who write it and those who read it."""

from __future__ import annotations

MODEL = "model.onnx"
# The metadata key for the kind of KV cache: past and present may share a buffer (in place), or never do (appended).
CACHE_KEY = "securecoderl_edge.cache"
IN_PLACE, APPENDED = "in-place", "appended"
