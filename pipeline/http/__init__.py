"""HTTP with other systems: which addresses may be asked, retries, and what errors mean."""
