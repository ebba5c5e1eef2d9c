"""The load test of the web process: each hostile act in turn, while 20 others send ordinary requests."""

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from entrypoints.cli.context import quiet_logs
from entrypoints.stack.stack import Stack, running
from entrypoints.stack.supervisor import stop_signals
from tools.command_line import end_with, say
from tools.storm import callers, run
from tools.storm.generator import Order, Phase, Request, start
from tools.storm.processes import peak_kb

CALLERS = 20
A_SECOND = 12.0
"""Honest requests a second: 7,200 in ten minutes."""

QUIET = 0.25
"""Duration of the time before the acts, when only honest callers send, relative to that of all acts."""

WARM_UP = 5.0
PROBE_PAUSE = 0.25
"""Seconds between two requests to `/health/live`."""

P99_SECONDS, LIVE_SECONDS, MEGABYTES = 1.0, 0.2, 300.0

SHARED_RATIO, SHARED_LIVE_SECONDS = 10.0, 2.0
"""On a machine shared with other work: the allowed factor over the quiet time of the same run, and the
seconds allowed for `/health/live`, because a scheduler alone can delay single answers that long."""


@dataclass
class Result:
    seconds: float
    quiet: dict[str, Any] = field(default_factory=dict)
    acts: list[dict[str, Any]] = field(default_factory=list)
    attacked: dict[str, Any] = field(default_factory=dict)
    """The figures of all acts together."""
    web_peak_mb: float = 0
    restarts: int = 0
    load_average: tuple[float, ...] = ()
    problems: list[str] = field(default_factory=list)


@dataclass
class _Probe:
    """Polls `/health/live` in a thread at normal priority, and samples the web process's memory."""

    url: str
    pid: int
    asked: list[Request] = field(default_factory=list)
    peaks: list[tuple[float, int]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        address = urlsplit(self.url)
        while not self.over.wait(PROBE_PAUSE):
            at, status = time.monotonic(), 0
            connection = HTTPConnection(address.hostname or "", address.port, timeout=60)
            try:
                connection.request("GET", "/health/live")
                status = connection.getresponse().status
            except (OSError, HTTPException):
                status = 0
            finally:
                connection.close()
            self.asked.append(Request(at, time.monotonic() - at, status, "/health/live"))
            self.peaks.append((time.monotonic(), peak_kb(self.pid)))


def load(seconds: float, folder: Path, say: Callable[[str], None], *, files: int, shared: bool) -> Result:
    """Run the load test; main thread only, because it supervises the stack. `folder`: an empty one."""
    run.forget_settings()
    quiet_logs()
    result = Result(seconds)
    with stop_signals() as signals, running(run.config(folder, {}), signals, say) as stack:
        run.fill_working_storage(stack, files)
        _measure(stack, result, say)
    _judge(result, shared)
    return result


def _measure(stack: Stack, result: Result, say: Callable[[str], None]) -> None:
    url = stack.info.web_url
    good, bad = run.COLLECTIONS
    tokens = tuple(run.new_token(stack.settings, f"honest-{number}", good) for number in range(CALLERS))
    quiet = result.seconds * QUIET
    longest = WARM_UP + 2 * (quiet + result.seconds) + 60
    probe = _Probe(url, run.web_of(stack).pid)
    thread = threading.Thread(target=probe.run, name="probe")
    honest = start(Order(url, good, tokens, longest, A_SECOND))
    started = time.monotonic()
    hostile = None
    try:
        stack.supervisor.poll_for(WARM_UP)
        thread.start()
        stack.supervisor.poll_for(quiet)
        mallory = run.hostile_tokens(stack.settings)
        hostile = start(Order(url, bad, mallory, result.seconds / len(callers.ACTS)))
        phases = [Phase(**one) for one in json.loads(run.output_of(hostile, stack, longest))]
        answered = [Request(**one) for one in json.loads(run.output_of(honest, stack, longest))]
    finally:
        for process in (honest, hostile):
            if process is not None and process.poll() is None:
                process.kill()
        probe.over.set()
        thread.join()
    begun = started + WARM_UP, phases[0].began
    result.quiet = _figures("quiet", *begun, answered, probe)
    for phase in phases:
        result.problems += callers.accepted(phase.act, phase.answers)
        shown = _figures(phase.act, phase.began, phase.ended, answered, probe)
        result.acts.append({**shown, "hostile_answers": phase.answers})
        say(json.dumps(result.acts[-1]))
    result.attacked = _figures("all acts", phases[0].began, phases[-1].ended, answered, probe)
    result.web_peak_mb = round(max(kb for _, kb in probe.peaks) * 1024 / 1e6)
    result.restarts = len(run.web_of(stack).restarts)
    result.load_average = tuple(round(one, 1) for one in os.getloadavg())


def _figures(
    name: str, began: float, ended: float, answered: Iterable[Request], probe: _Probe
) -> dict[str, Any]:
    took = sorted(one.seconds for one in answered if began <= one.at < ended)
    live = [one.seconds for one in probe.asked if began <= one.at < ended]
    failed = [one for one in answered if began <= one.at < ended and not 200 <= one.status < 300]
    peaks = [kb for at, kb in probe.peaks if at < ended]
    return {
        "act": name,
        "seconds": round(ended - began, 1),
        "requests": len(took),
        "failed": sorted({f"{one.path}: {one.status}" for one in failed}),
        "p50_s": round(_share(took, 0.5), 3),
        "p99_s": round(_share(took, 0.99), 3),
        "worst_s": round(_share(took, 1), 3),
        "live_worst_s": round(max(live, default=0.0), 3),
        "peak_mb": round(max(peaks, default=0) * 1024 / 1e6),
    }


def _share(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _judge(result: Result, shared: bool) -> None:
    p99, live = P99_SECONDS, LIVE_SECONDS
    if shared:
        p99 = max(p99, SHARED_RATIO * result.quiet["p99_s"])
        live = max(SHARED_LIVE_SECONDS, SHARED_RATIO * result.quiet["live_worst_s"])
    attacked = result.attacked
    for name, limit in (("p99_s", p99), ("live_worst_s", live)):
        if attacked[name] >= limit:
            result.problems.append(f"{name} is {attacked[name]}, not below {limit:.2f}")
    result.problems += [f"{one['act']}: failed {one['failed']}" for one in result.acts if one["failed"]]
    if result.web_peak_mb >= MEGABYTES:
        result.problems.append(f"the web process had {result.web_peak_mb:.0f} MB")
    if result.restarts:
        result.problems.append(f"the web process was restarted {result.restarts} times")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev load",
        description="Each hostile act of one depositor's token against the web process of the default stack, "
        "at shipped settings, while 20 others send ordinary requests; exit code 1 if they are delayed.",
        epilog="Example: ./dev load --seconds 600 --json",
    )
    parser.add_argument("--seconds", type=float, default=600, help="of all acts together (default: 600)")
    parser.add_argument(
        "--files",
        type=int,
        default=callers.FILES_IN_WORKING_STORAGE,
        help="in working storage, of nobody (default: 100,000)",
    )
    parser.add_argument(
        "--shared", action="store_true", help="judge by the quiet time of this run: other work runs here"
    )
    parser.add_argument("--json", action="store_true", help="end with one JSON object on standard output")
    parsed = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="arkline-load-"))
    try:
        result = load(parsed.seconds, folder, say, files=parsed.files, shared=parsed.shared)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for name, value in vars(result).items():
        if name != "acts":
            say(f"{name}: {value}")
    if parsed.json:
        sys.stdout.write(json.dumps(vars(result)) + "\n")
    return 1 if result.problems else 0


if __name__ == "__main__":
    end_with(main)
