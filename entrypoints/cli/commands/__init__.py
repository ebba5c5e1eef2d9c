"""The commands of `arkline`, one module per subject."""
