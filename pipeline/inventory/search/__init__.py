"""The search of objects: by text, and by what checks found."""
