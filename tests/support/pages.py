"""The commands that a page of the documentation shows."""

import re
from pathlib import Path


def commands(page: Path) -> list[str]:
    """The commands of the page's shell blocks; of the README also those of its tables."""
    shown: list[str] = []
    fence: str | None = None
    for line in page.read_text().replace("\\\n", " ").splitlines():
        if line.startswith("```"):
            fence = line.removeprefix("```") if fence is None else None
        elif fence == "sh":
            shown.append(re.sub(r"(^|\s+)#.*", "", line))
        elif fence == "console" and line.startswith("$ "):
            shown.append(line.removeprefix("$ "))
        elif fence is None and page.name == "README.md" and line.startswith("|"):
            shown += re.findall(r"`(arkline [^`]+)`", line)
    return [command for command in shown if command.strip()]
