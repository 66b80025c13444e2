"""Faults and honest files -> whether `verify` finds each, where it is and what it is."""
