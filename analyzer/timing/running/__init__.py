"""A process of its own that runs a model with onnxruntime: a request -> a reply, or a sentence."""
