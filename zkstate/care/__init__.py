"""Care of the record: audit, copy and restore, quarantine, the deployment id."""
