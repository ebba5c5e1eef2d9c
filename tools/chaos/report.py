"""Reports for people: the table of a run, and the shortest timeline that shows a problem."""

import json
from datetime import datetime

from tools.chaos.cluster import Cluster
from tools.chaos.final_state import FinalState
from tools.chaos.problem import Category, Problem
from tools.chaos.result import Result
from tools.chaos.run import RunLog
from tools.chaos.schedule import Kind

SHOWN = 12
"""Maximum problems listed; the first usually explain the others."""

LINES = 120
"""Maximum lines of the timeline."""


def table(run_log: RunLog, result: Result) -> str:
    kinds = run_log.kinds()
    figures = result.as_json(run_log)
    lines = [f"  {name:<32}{count:>5}" for name, count in sorted(kinds.items())]
    sorts = ", ".join(f"{sort} {result.count(sort)}" for sort in Category)
    quiet = "never" if run_log.quiet_after is None else f"after {run_log.quiet_after:.0f} s"
    lines += [
        f"{kinds.total()} faults, {result.jobs} jobs: {result.completed} completed, "
        f"{result.failed} failed ({result.planted} planted), {len(run_log.resumed)} resumed; quiet {quiet}",
        f"{sorts}; recovery p95 {figures['recovery_p95_s']} s of {figures['recoveries']}, "
        f"{figures['recovery_alone_p95_s']} s of the {figures['recoveries_alone']} without another fault",
        f"repeated: {result.repeated.mails} mails, {result.repeated.callbacks} callbacks",
    ]
    if result.problems:
        lines.append(f"FAILED: {_again(run_log)}")
    return "\n".join(lines) + "\n"


def _again(run_log: RunLog) -> str:
    """The command that repeats the run."""
    options = run_log.options
    chosen = (
        ""
        if len(options.kinds) == len(Kind)
        else " --only " + " ".join(sorted(k.label for k in options.kinds))
    )
    hosts = f" --hosts {options.hosts}" if options.hosts else ""
    return (
        f"python -m tools.chaos --seed {options.seed} --jobs {options.jobs} --faults {options.faults} "
        f"--minutes {options.seconds / 60:g}{hosts}{chosen}"
    )


def shortest(cluster: Cluster, run_log: RunLog, problems: tuple[Problem, ...], final: FinalState) -> str:
    """The problems, and the timeline of the first that is about a single job or batch."""
    lines = [f"{problem.sort}: {problem.about} {problem.text}" for problem in problems[:SHOWN]]
    if len(problems) > SHOWN:
        lines.append(f"and {len(problems) - SHOWN} more")
    about = [problem.about for problem in problems if problem.about]
    if about:
        chosen = min(about, key=lambda name: len(_moments(cluster, run_log, final, name)))
        lines += [f"--- {chosen}", *_moments(cluster, run_log, final, chosen)[-LINES:]]
    return "\n".join(lines)


def _moments(cluster: Cluster, run_log: RunLog, final: FinalState, name: str) -> list[str]:
    """The history, log lines and faults of its time span, in chronological order."""
    own = [*_history(final, name), *_logged(cluster, name)]
    if not own:
        return []
    first, last = min(own)[0] - 10, max(own)[0] + 10
    faults = [
        (entry.clock, f"FAULT {entry.text}") for entry in run_log.events if first <= entry.clock <= last
    ]
    begin = run_log.events[0].clock - run_log.events[0].at if run_log.events else first
    return [f"{moment - begin:7.2f}  {line}" for moment, line in sorted([*own, *faults])]


def _history(final: FinalState, name: str) -> list[tuple[float, str]]:
    job = final.jobs.get(name)
    if job is None:
        return []
    return [
        (entry.at.timestamp(), f"{entry.event or 'try'} -> {entry.state} by {entry.by} {entry.message}")
        for entry in job.history
    ]


def _logged(cluster: Cluster, name: str) -> list[tuple[float, str]]:
    entries = []
    for log in sorted((cluster.folder / "log").glob("*.log")):
        for line in log.read_text(errors="replace").splitlines():
            if name not in line or not line.startswith("{"):
                continue
            try:
                said = json.loads(line)
            except ValueError:
                continue
            moment = datetime.fromisoformat(said.pop("timestamp")).timestamp()
            facts = " ".join(f"{key}={value}" for key, value in said.items() if value not in ("", None))
            entries.append((moment, f"{log.stem}: {facts[:600]}"))
    return entries
