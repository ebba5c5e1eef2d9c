"""Content sources: sizes, small documents and downloads over HTTP(S)."""
