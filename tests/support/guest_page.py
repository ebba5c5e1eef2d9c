"""What docs/developers/guests.md shows: the files of a guest, and the checks of a profile."""

import re

from tools.checkout import PROJECT

TEMPLATE = PROJECT / "examples" / "guest"
PAGE = (PROJECT / "docs" / "developers" / "guests.md").read_text()

PROGRAM = "has-a-name.sh"


def shown_files() -> dict[str, str]:
    """The files that the page shows, each after a line that ends with its name."""
    return dict(re.findall(r"`([\w./-]+)`:\n\n```\w+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


def shown_checks() -> str:
    """The part of a profile that the page shows."""
    (checks,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(checks)
