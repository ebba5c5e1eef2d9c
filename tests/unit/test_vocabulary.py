"""Private words are used neither in code, nor in messages, nor in documentation."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
CODE = (
    "celeryconfig.py",
    "pipeline",
    "zkstate",
    "tasks",
    "operations",
    "entrypoints",
    "plugins",
    "tools",
    "benchmarks",
)
TEXT = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs")

PHRASES: dict[str, tuple[int, str]] = {
    "(?:go(?:es|ne|ing)?|went) on(?! hold)": (6, "continue"),
    "by now": (0, "now"),
    "courteous": (0, "host limits"),
    "courtesy": (0, "host limits"),
    "deaf": (3, "stalled"),
    "glance": (2, "poll interval"),
    "grown": (0, "next inventory"),
    "hopeless": (0, "exhausted"),
    "is at it": (0, "is running"),
    "(?<!web )kit": (0, "clients"),
    "landed": (11, "downloaded"),
    "landing": (5, "download or workspace"),
    "latch": (0, "attempt guard or lock"),
    "leash": (0, "die with parent"),
    "ledger": (0, "record"),
    "made good": (2, "repaired"),
    "mend(?:s|ed|ing)?": (0, "fix"),
    "nobody (?:can|could) say": (0, "unknown"),
    "obituary": (0, "crash error"),
    "on its looks": (0, "unverified"),
    "patience": (0, "timeout"),
    "peace": (0, "back-off"),
    "rehearsal": (0, "dry run"),
    "rehearsed?": (0, "dry run"),
    "stands? still": (1, "has stopped"),
    "t(?:ake[sn]?|aking|ook) up": (1, "accept, start or pick up"),
    "tend": (0, "poll"),
    "told": (9, "said, reported or notified"),
    "vouch(?:er)?": (0, "checksum"),
    "wanted": (0, "expected, required"),
    "will not do": (0, "is not valid"),
}
"""Word or phrase, in lower case -> how often it may occur, and what to write instead.

The numbers only fall. A name counts as its words: `DeafWorker` and `deaf_worker` are "deaf worker".
"""

NAMES: dict[str, int] = {
    "each": 0,
    "found": 5,  # a verdict: the rule of a check says what it means, and summaries count its files
    "wanted": 0,
    "made": 0,
    "kept": 0,
    "told": 0,
    "seen": 4,
    "look": 0,
    "alive": 0,
}
"""Name of a variable or parameter that says nothing of its value -> how often it may be bound."""


def files(roots: tuple[str, ...], suffix: str) -> list[Path]:
    paths = [PROJECT / root for root in roots]
    return [
        file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob(f"*{suffix}")))
    ]


def words_of(text: str) -> str:
    """The text in lower case with one space between words, those within names included."""
    separated = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return " ".join(re.split(r"[\s_#>]+", separated.lower()))


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return {
        str(path.relative_to(PROJECT)): words_of(path.read_text())
        for path in (*files(CODE, ".py"), *files(TEXT, ".md"))
    }


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_private_word_is_not_used_more_often(texts: dict[str, str], phrase: str) -> None:
    limit, instead = PHRASES[phrase]
    pattern = re.compile(rf"\b(?:{phrase})\b")

    uses = {path: count for path, text in texts.items() if (count := len(pattern.findall(text)))}

    where = ", ".join(f"{path} ({count})" for path, count in uses.items())
    assert sum(uses.values()) <= limit, f"'{phrase}' is not used here: write {instead}; it is in {where}"


def test_a_variable_is_named_for_its_value() -> None:
    bound: Counter[str] = Counter()
    for path in files(CODE, ".py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.arg):
                bound[node.arg] += 1
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                bound[node.id] += 1

    assert {name: bound[name] for name, limit in NAMES.items() if bound[name] > limit} == {}


def test_the_words_within_a_name_are_found() -> None:
    assert words_of("def watch_deafWorker(Deaf):\n    # a\n    # b") == "def watch deaf worker(deaf): a b"
