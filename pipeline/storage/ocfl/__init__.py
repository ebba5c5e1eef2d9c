"""OCFL 1.1: how an object lies in a storage root, and how it gets another version."""
