"""Notifications of depositors and their systems: callbacks, mail, reports."""
