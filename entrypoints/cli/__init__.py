"""The command `arkline`: one file for each group of commands; what they do is in operations."""
