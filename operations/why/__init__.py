"""Why a job or a batch is where it is."""
