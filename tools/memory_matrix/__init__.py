"""Planned memory of runs, compared with onnxruntime's requests: files, sizes, optimization levels."""
