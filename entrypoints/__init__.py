"""The entry points: the command line, the web interfaces and the local stack."""
