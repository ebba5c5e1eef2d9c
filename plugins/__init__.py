"""Guests: what arkline can do beside its core, each in a package with the extra of the same name.

The core finds them by their entry points (`pipeline/plugins.py`) and imports none of them.
"""
