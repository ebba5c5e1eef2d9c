"""Format identification by PRONOM's signatures, with siegfried, as a check."""
