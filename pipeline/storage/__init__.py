"""Where objects are kept: one Protocol, and a package for each kind of storage."""
