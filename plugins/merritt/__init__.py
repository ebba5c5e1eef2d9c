"""The storage and inventory services of Merritt, and its submission form."""
