"""Memory of a run: onnxruntime's plan of its buffers, replayed on a file without running it."""
