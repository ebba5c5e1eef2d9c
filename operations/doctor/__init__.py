"""What is examined before production and in trouble, and what is sent to an engineer who cannot reach it."""
