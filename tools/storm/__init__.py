"""`./dev storm`: hostile deposits among honest ones on the default stack.

Every honest deposit completes, every hostile one ends with a message, no process exceeds its memory limit,
and nothing is left behind.
"""
