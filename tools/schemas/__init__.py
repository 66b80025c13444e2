"""The records of `analyzer.documents` -> the JSON Schemas that ship, and the tables of the reference page."""
