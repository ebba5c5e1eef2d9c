"""Records which functions of a checkout this process calls; `benchmarks/walks.py` adds it to the path.

The file `mark` in the folder WALKS_FOLDER holds a word. When the word changes, and at exit, the process
writes what it has called since the last change, for each thread. Calls during the import of a module are
skipped.
"""

import atexit
import json
import os
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import FrameType

CODE, FOLDER = os.environ["WALKS_CODE"], Path(os.environ["WALKS_FOLDER"])
PACKAGES = tuple(
    f"{CODE}/{package}/"
    for package in ("pipeline", "zkstate", "tasks", "operations", "entrypoints", "plugins")
)
IS_FUNCTION = 1
"""CO_OPTIMIZED: the code is a function's, not a class's or module's."""

CHECK_SECONDS = 0.01

called: dict[str, set[tuple[str, str]]] = defaultdict(set)
imports = threading.local()


def note(frame: FrameType, event: str, argument: object) -> None:
    code = frame.f_code
    if code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
        # this module returns without having been called
        imports.depth = max(0, getattr(imports, "depth", 0) + {"call": 1, "return": -1}.get(event, 0))
    elif (
        event == "call"
        and code.co_flags & IS_FUNCTION
        and code.co_filename.startswith(PACKAGES)
        and code.co_name[0] != "<"
        and not getattr(imports, "depth", 0)
    ):
        thread = threading.current_thread()
        place = (code.co_filename.removeprefix(f"{CODE}/"), f"{code.co_qualname}:{code.co_firstlineno}")
        called[f"{thread.name} {thread.ident}"].add(place)


def write(word: str) -> None:
    calls = {thread: sorted(places) for thread, places in dict(called).items()}
    called.clear()
    target = FOLDER / f"{word}.{os.getpid()}.json"
    target.with_suffix(".part").write_text(json.dumps(calls))
    target.with_suffix(".part").replace(target)


def current_word() -> str:
    try:
        return (FOLDER / "mark").read_text()
    except FileNotFoundError:
        return ""


def follow() -> None:
    word = current_word()
    while True:
        time.sleep(CHECK_SECONDS)
        if (new := current_word()) != word:
            write(word or "start")
            word = new


def begin() -> None:
    called.clear()
    threading.Thread(target=follow, name="walks", daemon=True).start()
    threading.setprofile(note)
    sys.setprofile(note)


begin()
os.register_at_fork(after_in_child=begin)
atexit.register(lambda: write("end"))
