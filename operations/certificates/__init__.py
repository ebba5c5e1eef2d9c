"""Certificates of the servers of one deployment, by an authority of its own."""
