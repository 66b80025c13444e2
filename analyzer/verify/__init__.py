"""Two files on the same inputs -> whether they compute the same, and if not, from which node on."""
