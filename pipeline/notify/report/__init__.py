"""The report that a depositor gets about a batch: composed from the record, as text, JSON and mail."""
