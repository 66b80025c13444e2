"""Which kernels of the installed onnxruntime work in the memory of an input, learnt from models of one node."""
