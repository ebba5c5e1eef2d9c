"""What this archive adds to arkline."""
