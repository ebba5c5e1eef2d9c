"""What commands show to people, rendered from what the operations return."""
