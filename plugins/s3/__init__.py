"""Objects in an OCFL storage root in S3."""
