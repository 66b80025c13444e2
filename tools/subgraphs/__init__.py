"""Blocks found in files, with and without names, compared with the layers of the models."""
