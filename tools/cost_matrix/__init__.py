"""Our counts of a model's work, compared with onnxruntime's runs: files, sizes, and other tools."""
