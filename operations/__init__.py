"""The verbs and views, once: what the command line, the API and the pages do, each in one function.

A function here is given a `Site`, the principal who asks, and its own arguments.
"""
