"""Tables in files: reading and writing them, feature columns and targets."""
