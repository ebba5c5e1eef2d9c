"""Virus scanning by clamd, ClamAV's daemon, as a check."""
