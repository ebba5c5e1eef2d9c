"""Tests that a site's own backends must pass: `pytest --arkline-storage=MODULE:FUNCTION`."""
