"""The formats that depositors give and that objects are described in, one to a file."""
