"""What PyTorch keeps on disk, state dicts and their headers -> PyTorch's side of a comparison; and back to a file."""
