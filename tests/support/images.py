"""Images of others that are named by their version alone."""

WITHOUT_DIGEST = frozenset({"zookeeper:3.9.7", "clamav/clamav:1.4.6_base"})
"""Their digests have not been asked for at a registry yet; an invented one would be refused by every host."""
