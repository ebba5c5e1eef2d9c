"""Working storage: jobs' working directories, and the capacity of the disk."""
