"""Development programs of a checkout; they are not in the wheel."""
