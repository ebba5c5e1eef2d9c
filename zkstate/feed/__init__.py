"""What changes in the record, as it is pushed."""
