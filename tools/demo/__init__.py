"""`./dev demo`: a small collection goes the whole way through the real stack."""
