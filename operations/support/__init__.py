"""What is sent to an engineer who cannot reach the deployment."""
