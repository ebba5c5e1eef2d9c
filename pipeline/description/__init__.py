"""Descriptive metadata: ERC, Dublin Core, DataCite, PREMIS, and the depositor's own files."""
