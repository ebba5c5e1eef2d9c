"""The commands of `arkline`, a room of commands for each subject."""
