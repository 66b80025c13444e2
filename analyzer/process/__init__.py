"""How work is run: in processes that may die, within a time, without the garbage collector."""
