"""Decoding of foreign bytes in a process of its own, which has limits and can be killed alone."""
