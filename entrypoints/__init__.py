"""The doors: the command line and the local stack."""
