"""What the folder of a test says: its markers, and the servers that its tests may start."""

from collections.abc import Callable, Collection, Sequence
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

MARKERS = {"integration": ("integration",), "e2e": ("e2e", "integration", "no_cover")}
"""Folder below tests/ -> the markers of its tests.

What a test of e2e shows is done by processes in which no coverage is measured.
"""

SERVERS = frozenset({"zookeeper", "redis_server"})
"""The fixtures that start ZooKeeper and Redis."""

LONGEST_FIRST = (
    "test_containers_short",
    "test_simulation",
    "test_storm_short",
    "test_dashboard_troubles",
    "test_chaos_short",
    "test_printed_remedies",
    "test_chaos_on_hosts",
    "test_documented_commands",
    "test_guests",
    "test_recovery",
    "test_adding_a_step",
    "test_new_deposit",
    "test_deposit_choices",
    "test_conformance",
    "test_scaling_drill",
    "test_outside_services",
    "test_deployment",
    "test_benchmarks",
    "test_kazoo",
    "test_demo",
    "test_every_page",
    "test_restore_drill",
    "test_browser",
)
"""The files whose tests take longest, as a run of all tests has measured them."""

PLUGINS = "plugins"
"""The folder with a folder for each plugin, whose tests may start whatever the plugin needs."""


def markers(folder: str, fixtures: Collection[str]) -> tuple[str, ...]:
    """The markers of a test with these fixtures."""
    if folder == PLUGINS:
        return ("integration",) if SERVERS.intersection(fixtures) else ()
    return MARKERS.get(folder, ())


def turn(path: Path) -> int:
    """When the tests of a file are run: the longest first, so that no process waits for them at last.

    Files of the same turn keep their order.
    """
    if path.stem in LONGEST_FIRST:
        return LONGEST_FIRST.index(path.stem)
    return len(LONGEST_FIRST) + (path.parent.name != "e2e")


def distributed(tests: Sequence[T], path_of: Callable[[T], Path], processes: int) -> list[T]:
    """The tests in the order in which all processes but the last begin with long tests.

    Long tests mostly wait, and the others need a core: side by side they load the machine evenly. `tests`
    are in the order of turns. pytest-xdist gives each process an equal share of consecutive tests; a process
    that becomes idle takes tests from the end of another share.
    """
    long = [test for test in tests if turn(path_of(test)) <= len(LONGEST_FIRST)]
    others = iter(tests[len(long) :])
    shares: list[list[T]] = [[] for _ in range(processes)]
    for number, (_, of_file) in enumerate(groupby(long, key=path_of)):
        shares[number % max(1, processes - 1)] += of_file
    left = len(tests)
    for number, share in enumerate(shares):
        share += islice(others, max(0, left // (processes - number) - len(share)))
        left -= len(share)
    return [*chain.from_iterable(shares), *others]


def refusal(folder: str, fixtures: Collection[str]) -> str:
    """Why a test with these fixtures must not be in this folder; empty if it may."""
    started = sorted(SERVERS.intersection(fixtures))
    if folder in (PLUGINS, *MARKERS) or not started:
        return ""
    return f"uses the fixture {' and '.join(started)}: move it to tests/integration"
