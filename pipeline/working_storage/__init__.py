"""Working storage: a job's working directory, and how full the disk is."""
