"""`./dev`: what a developer, and a curious visitor, does with a checkout."""
