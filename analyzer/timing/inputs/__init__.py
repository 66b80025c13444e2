"""What a model is fed: its signature + what was asked -> the size of every axis and how each input is made."""
