"""What runs before anything is installed."""
