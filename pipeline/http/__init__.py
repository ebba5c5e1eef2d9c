"""HTTP with other systems: permitted addresses, retries, and the meaning of errors."""
