"""Kinds of tampering x architectures x forms: each changes the outputs of a file, and `reconcile` should report it."""
