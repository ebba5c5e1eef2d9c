"""What a release promises to programs, and what it says to people, as files that a test compares."""
