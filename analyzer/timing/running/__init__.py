"""A separate process that runs a model with onnxruntime: a request -> a reply, or an error sentence."""
