"""Thousands of small models to survey: networks; their copies, casts, codes and edits; broken and hostile files."""
