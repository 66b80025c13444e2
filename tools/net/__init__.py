"""Reports of every kind in every format -> digests, which show the reports that a change of the code changes."""
