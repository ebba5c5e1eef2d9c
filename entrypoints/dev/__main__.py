"""`python -m entrypoints.dev`, where tools/bootstrap.py hands over."""

from entrypoints.dev.app import main

main()
