"""Blocks found in files, with and without names, against the layers that the models have."""
