"""ONNX folders, run by onnxruntime."""
