"""Objects that are stored: their custody, fixity, export."""
