"""`python -m tools.dev`, where tools/bootstrap.py hands over."""

from tools.dev.app import main

main()
