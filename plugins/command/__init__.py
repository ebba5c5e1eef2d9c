"""The check that runs a program of the site, with exit codes and JSON on its standard output."""
