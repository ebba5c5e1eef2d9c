"""Decoding of untrusted bytes in a separate process, which has limits and can be killed on its own."""
