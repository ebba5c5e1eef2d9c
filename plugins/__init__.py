"""Guests: what arkline can do beyond its core, each in a package with an extra of the same name.

The core finds them by their entry points (`pipeline/plugins.py`) and imports none of them.
"""
