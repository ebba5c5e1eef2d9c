"""Folders that settings name."""

from pathlib import Path

from pipeline.errors import UsageRefused


def absolute(path: Path, variable: str) -> Path:
    """UsageRefused for a relative path, unless all processes of the checkout share the current folder."""
    in_checkout = Path("pyproject.toml").is_file() and Path.cwd() == Path(__file__).resolve().parents[1]
    if not path.is_absolute() and not in_checkout:
        raise UsageRefused(
            f"{variable} is the relative path '{path}', so that processes in different folders would work on "
            "different data: set it to an absolute path"
        )
    return path.absolute()
