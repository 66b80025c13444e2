"""Document -> Page, a module for each kind of report: the content and its order, independent of the format."""
