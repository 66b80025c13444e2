"""What is planned of a run's memory, beside what onnxruntime asks for: files, sizes, levels of optimization."""
