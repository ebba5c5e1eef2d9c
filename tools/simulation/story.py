"""The story of a history for a person: who asks for what, the answer, what is done to files, the faults."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from kazoo.exceptions import ZookeeperError
from kazoo.protocol.serialization import Create, SetData
from kazoo.protocol.states import ZnodeStat

from tools.simulation.ensemble import Change, CloseSession
from tools.simulation.world import BEGINNING

_VERBS = {"record": "asks", "answer": "gets", "file": "file", "source": "fetches", "broker": "message"}

_FAULTS = ("fault", "killed", "frozen", "broken", "expired", "wiped", "lost", "repeated")


def readable(lines: Iterable[str]) -> Iterator[str]:
    """The lines of a story with seconds since its beginning, without the end of each effect on files."""
    for line in lines:
        moment, who, kind, rest = line.split(" ", 3)
        if kind == "file" and rest.startswith("after"):
            continue
        mark = "***" if kind in _FAULTS else "   "
        yield f"{float(moment) - BEGINNING:10.4f} {mark} {who:10} {_VERBS.get(kind, kind):8} {rest}"


def changed(changes: Iterable[Change]) -> str:
    """What a transaction changes; of a status, the state and the epoch."""
    return "; ".join(map(_changed, changes))


def _changed(change: Change) -> str:
    if isinstance(change, CloseSession):
        return "the end of the session"
    what = f"{type(change).__name__.lower()} {change.path}"
    if (version := getattr(change, "version", -1)) >= 0:
        what += f" at version {version}"
    if isinstance(change, Create | SetData) and change.path.endswith("/status"):
        status = json.loads(change.data)
        what += f" ({status['status']}, epoch {status['epoch']}, attempt {status['attempt']})"
    return what


def answered(request: Any, answer: Any) -> str:
    """What a server answers, in a few words."""
    what = f"{type(request).__name__} {getattr(request, 'path', '')}".rstrip()
    if isinstance(answer, ZookeeperError):
        return f"{what}: {type(answer).__name__}"
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], ZnodeStat):
        return f"{what}: version {answer[1].version}"
    if isinstance(answer, list):
        errors = [type(one).__name__ for one in answer if isinstance(one, ZookeeperError)]
        return f"{what}: {', '.join(errors) or f'{len(answer)} results'}"
    return f"{what}: {'there is none' if answer is None else 'done'}"
