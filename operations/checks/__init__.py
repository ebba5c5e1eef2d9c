"""Compares record, storage and inventory, and repairs what can be repaired."""
