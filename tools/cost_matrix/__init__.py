"""What is said of a model's work beside what onnxruntime runs: files, sizes, and other tools."""
