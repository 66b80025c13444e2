"""A report -> the sentences and titles of it that text and Markdown share: plain strings, names in them escaped."""
