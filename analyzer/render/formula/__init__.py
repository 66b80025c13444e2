"""A report on a formula -> sections of pieces, which text, Markdown and LaTeX write each in their way."""
