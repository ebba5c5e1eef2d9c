"""What depositors and their systems are told: callbacks, mail, reports."""
