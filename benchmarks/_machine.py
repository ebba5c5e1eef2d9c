"""The machine of a benchmark: cores, load, versions. Figures of two machines are not comparable."""

import os
import platform
from importlib.metadata import version

import redis

from benchmarks._packets import counters
from benchmarks._stack import Stack

_LIBRARIES = ("celery", "kombu", "redis", "kazoo", "pycurl", "pydantic")


def use_two_cores() -> None:
    """Pin this process, and all that it starts, to two cores: the size for which the goals are set."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])


def host() -> dict[str, object]:
    """This machine's cores and load, and the versions of Python and its libraries."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "versions": _libraries(),
    }


def machine(own: Stack) -> dict[str, object]:
    broker = redis.Redis.from_url(own.broker.url).info("server")
    servers = {
        "zookeeper": counters(own.session)["zk_version"].partition("-")[0],
        broker.get("server_name", "redis"): broker.get("valkey_version", broker["redis_version"]),
    }
    return {**host(), "versions": {**servers, **_libraries()}}


def _libraries() -> dict[str, str]:
    return {"python": platform.python_version(), **{f"{name} (Python)": version(name) for name in _LIBRARIES}}
