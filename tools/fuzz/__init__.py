"""Coverage-guided fuzzing of the reader: `make fuzz`."""
