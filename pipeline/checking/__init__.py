"""Checks of deposited files by guests, each in a process of its own that can be killed alone."""
