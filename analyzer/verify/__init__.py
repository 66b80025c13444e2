"""Two sides run on the same inputs -> whether they compute the same, and if not, the first node that differs."""
