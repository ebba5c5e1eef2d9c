"""Which file of tests a process gets next: half of the processes take those of whole fleets first.

Otherwise all processes would run fleets at once at the beginning, and what takes a second would take ten.
"""

from functools import partial
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") != "loadfile":
        return None
    scheduling = LoadFileScheduling(config, log)
    scheduling._assign_work_unit = partial(assign, scheduling, scheduling._assign_work_unit)
    return scheduling


def assign(scheduling: Any, assign_first: Any, node: Any) -> None:
    """Assign the first file of the node's own half, or of the other half once there is none."""
    takes_fleets = scheduling.nodes.index(node) % 2 == 0
    own = (file for file in scheduling.workqueue if file.startswith("tests/e2e/") == takes_fleets)
    if (file := next(own, None)) is not None:
        scheduling.workqueue.move_to_end(file, last=False)
    assign_first(node)
