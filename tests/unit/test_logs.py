"""The log lines of long-running processes: JSON, one object a line, the libraries' lines in the same form."""

import json
import subprocess
import sys
from typing import Any

_PROCESS = """
import logging
import structlog
from tasks import logs

logs.configure("info")
with structlog.contextvars.bound_contextvars(bid="bid0000000001", attempt=2):
    logs.log().info("moved", to="recording")
    logging.getLogger("kazoo.client").warning("connection %s", "lost")
    try:
        raise ValueError("a mistake")
    except ValueError:
        logs.log().exception("failed")
logs.log().debug("hidden")
logging.getLogger("kazoo.client").info("hidden")
"""


def _lines() -> list[dict[str, Any]]:
    done = subprocess.run([sys.executable, "-c", _PROCESS], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_a_line_of_a_job_and_a_line_of_a_library_have_the_same_form() -> None:
    own, library, _ = _lines()

    assert (own["event"], own["to"], own["level"], own["logger"]) == ("moved", "recording", "info", "arkline")
    assert (library["event"], library["level"], library["logger"]) == (
        "connection lost",
        "warning",
        "kazoo.client",
    )
    for line in (own, library):
        assert (line["bid"], line["attempt"]) == ("bid0000000001", 2)
        assert line["timestamp"].endswith("Z")
        assert list(line)[:3] == ["timestamp", "level", "event"]


def test_an_error_is_logged_with_its_place_in_the_code() -> None:
    failed = _lines()[2]

    assert (failed["event"], failed["level"]) == ("failed", "error")
    assert "ValueError: a mistake" in failed["exception"]
