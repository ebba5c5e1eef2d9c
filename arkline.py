"""The version of arkline, and `python -m arkline`. The code is in the packages that pyproject.toml names."""

from importlib.metadata import version

from entrypoints.cli.main import main

__version__ = version("arkline")

if __name__ == "__main__":
    main()
