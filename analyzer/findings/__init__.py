"""What the user of a readable file should know: the rules that find it, and the catalogue that explains it.

`analyzer.findings.rules` runs the rules, `analyzer.findings.catalog` explains each id, and loads nothing but that.
"""
