"""Inputs of a run: a model's signature + the user's settings -> the size of every axis, the content of each input."""
