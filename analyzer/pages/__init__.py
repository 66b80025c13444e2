"""Document -> Page, once per kind of report: what is said, and in which order; a page knows no format."""
