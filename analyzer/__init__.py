"""Accounts for every parameter and every byte of an exported ONNX model; imports neither torch nor onnxruntime."""
