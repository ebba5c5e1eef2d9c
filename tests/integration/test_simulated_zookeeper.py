"""The simulated ZooKeeper answers as the real one: results, errors, versions, watches and their order."""

import pytest

from pipeline.settings import Settings
from tools.simulation import comparison
from tools.simulation.patches import patched
from tools.simulation.world import World

FOUND = (1, 3, 16, 43, 85, 474, 631)
"""Seeds of requests whose answers once differed."""

LENGTH = 60
"""Requests of a sequence."""


@pytest.mark.parametrize("seed", [*FOUND, *range(10_000, 10_020)])
def test_the_same_requests_get_the_same_answers_and_events(settings: Settings, seed: int) -> None:
    requests = comparison.sequence_of(seed, LENGTH)
    root = f"{settings.zk_root}-compared-{seed}"
    world = World(seed)
    with patched(world):
        simulated = comparison.simulated(requests, root)
        world.close()

    with comparison.recorded(settings, root) as recorder:
        recorder.run(requests)
        real = [list(lines) for lines in recorder.lines]

    assert comparison.in_ranks(simulated) == comparison.in_ranks(real)
