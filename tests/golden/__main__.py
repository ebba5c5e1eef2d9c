"""Write the files: `python -m tests.golden`, with `--because REASON` if texts for people changed."""

import argparse
import hashlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.golden import promises, texts

FOLDER = Path(__file__).parent
REASONS = FOLDER / "reasons.txt"
"""A line for each state of each text: its name, its digest, and why it is so."""

PROMISES: Mapping[str, Callable[[], list[str]]] = {
    "routes.txt": promises.routes,
    "codes.txt": promises.codes,
    "znodes.txt": promises.znodes,
}
TEXTS: Mapping[str, Callable[[], str]] = {
    "mails.txt": texts.mails,
    "why.txt": texts.explanations,
    "commands": texts.commands,
}
"""The commands have no file here: the manual page is one."""


def written(promised: list[str]) -> str:
    return "".join(f"{line}\n" for line in promised)


def removed(file: str, promised: list[str]) -> list[str]:
    """Lines of the file that the program does not keep."""
    current = set(promised)
    return [line for line in file.splitlines() if line not in current]


def reason(name: str, text: str) -> str:
    """The beginning of the line that has the reason for this state of the text."""
    return f"{name} {hashlib.sha256(text.encode()).hexdigest()[:16]}: "


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--because", default="", help="why a text for people changed")
    because = parser.parse_args().because
    for name, lines in PROMISES.items():
        promised, file = lines(), FOLDER / name
        if file.exists() and (gone := removed(file.read_text(), promised)):
            parser.error(f"{name} promises what the program does not keep:\n{written(gone)}Keep it.")
        file.write_text(written(promised))
    for name, compose in TEXTS.items():
        text = compose()
        if reason(name, text) not in REASONS.read_text():
            if not because:
                parser.error(f"{name} changed: say why with --because")
            with REASONS.open("a") as reasons:
                reasons.write(f"{reason(name, text)}{because}\n")
        if name.endswith(".txt"):
            (FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
