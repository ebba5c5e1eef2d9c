"""What the command doctor examines: one host of a deployment, and the servers that the settings name."""
