"""Objects in the Merritt storage service."""
