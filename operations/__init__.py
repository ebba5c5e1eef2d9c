"""The verbs and views that the command line, the API and the pages share, each in one function.

Every function takes a `Site`, the calling principal, and its own arguments.
"""
