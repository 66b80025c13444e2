"""Kernels of the installed onnxruntime that reuse the memory of an input, found with models of one node."""
