"""Kinds of tampering x architectures x forms: each changes what a file computes, and `reconcile` should say so."""
