"""`./dev`: the commands for developers, and for trying arkline from a checkout."""
