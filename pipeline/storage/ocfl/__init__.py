"""OCFL 1.1: objects and their versions in a storage root."""
