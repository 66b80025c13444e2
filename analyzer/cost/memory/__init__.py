"""What a run takes in memory: onnxruntime's plan of its buffers, replayed on a file that nobody runs."""
