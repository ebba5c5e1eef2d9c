"""The command `arkline`: one file per group of commands; the operations themselves are in `operations`."""
