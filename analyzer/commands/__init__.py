"""Commands that have a file of their own, and what commands have in common."""
