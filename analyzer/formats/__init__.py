"""Page -> text of one format each; a format knows no report."""
