"""A report of every kind in every format -> digests: what a change of the code changes in what is written."""
