"""The package as its users get it: its wheel, installed into clean environments with some extras or none."""
