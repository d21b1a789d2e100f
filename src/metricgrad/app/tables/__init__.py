"""Tables in files: what kind of file, which columns, what is learned from what."""
