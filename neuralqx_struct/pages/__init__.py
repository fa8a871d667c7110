"""Reports as HTML: one page that needs no other file and no network, about a checkpoint, a schema or two of either."""
