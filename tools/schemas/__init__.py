"""The records of `analyzer.documents` -> the JSON Schemas of the package, and the tables of the reference page."""
