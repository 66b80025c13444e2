"""The commands, a file for each, and the parts that they share."""
