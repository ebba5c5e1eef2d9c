"""What a person is shown: the table of a run, and the shortest timeline that shows a fault of ours."""

import json
from collections import Counter
from datetime import datetime

from tools.chaos.cluster import Arena
from tools.chaos.final_state import FinalState
from tools.chaos.problem import Category, Problem
from tools.chaos.result import Result
from tools.chaos.run import Course
from tools.chaos.schedule import Kind

SHOWN = 12
"""Problems listed; the first ones usually explain the others."""

LINES = 120
"""Lines of the timeline."""


def table(course: Course, result: Result) -> str:
    kinds = Counter(each.fault.kind.label for each in course.struck)
    told = result.as_json(course)
    lines = [f"  {name:<32}{count:>5}" for name, count in sorted(kinds.items())]
    sorts = ", ".join(f"{sort} {result.count(sort)}" for sort in Category)
    quiet = "never" if course.quiet_after is None else f"after {course.quiet_after:.0f} s"
    lines += [
        f"{len(course.struck)} faults, {result.jobs} jobs: {result.completed} completed, "
        f"{result.failed} failed ({result.planted} planted), {len(course.resumed)} resumed; quiet {quiet}",
        f"{sorts}; recovery p95 {told['recovery_p95_s']} s of {told['recoveries']}, "
        f"{told['recovery_alone_p95_s']} s of the {told['recoveries_alone']} that nothing else disturbed",
        f"repeated: {result.repeated.mails} mails, {result.repeated.callbacks} callbacks",
    ]
    if result.problems:
        lines.append(f"FAILED: {_again(course)}")
    return "\n".join(lines) + "\n"


def _again(course: Course) -> str:
    """The command that does the same."""
    order = course.order
    chosen = (
        "" if len(order.kinds) == len(Kind) else " --only " + " ".join(sorted(k.label for k in order.kinds))
    )
    return (
        f"python -m tools.chaos --seed {order.seed} --jobs {order.jobs} --faults {order.faults} "
        f"--minutes {order.seconds / 60:g}{chosen}"
    )


def shortest(stage: Arena, course: Course, problems: tuple[Problem, ...], remains: FinalState) -> str:
    """The problems, and the timeline of the first one that is about a single job or batch."""
    lines = [f"{each.sort}: {each.about} {each.text}" for each in problems[:SHOWN]]
    if len(problems) > SHOWN:
        lines.append(f"and {len(problems) - SHOWN} more")
    about = [each.about for each in problems if each.about]
    if about:
        chosen = min(about, key=lambda name: len(_moments(stage, course, remains, name)))
        lines += [f"--- {chosen}", *_moments(stage, course, remains, chosen)[-LINES:]]
    return "\n".join(lines)


def _moments(stage: Arena, course: Course, remains: FinalState, name: str) -> list[str]:
    """The history, the logs' lines and the faults of the time between, in one order."""
    own = [*_history(remains, name), *_logged(stage, name)]
    if not own:
        return []
    first, last = min(own)[0] - 10, max(own)[0] + 10
    faults = [(each.clock, f"FAULT {each.text}") for each in course.events if first <= each.clock <= last]
    begin = course.events[0].clock - course.events[0].at if course.events else first
    return [f"{moment - begin:7.2f}  {line}" for moment, line in sorted([*own, *faults])]


def _history(remains: FinalState, name: str) -> list[tuple[float, str]]:
    job = remains.jobs.get(name)
    if job is None:
        return []
    return [
        (entry.at.timestamp(), f"{entry.event or 'try'} -> {entry.state} by {entry.by} {entry.message}")
        for entry in job.history
    ]


def _logged(stage: Arena, name: str) -> list[tuple[float, str]]:
    found = []
    for log in sorted((stage.folder / "log").glob("*.log")):
        for line in log.read_text(errors="replace").splitlines():
            if name not in line or not line.startswith("{"):
                continue
            try:
                said = json.loads(line)
            except ValueError:
                continue
            moment = datetime.fromisoformat(said.pop("timestamp")).timestamp()
            facts = " ".join(f"{key}={value}" for key, value in said.items() if value not in ("", None))
            found.append((moment, f"{log.stem}: {facts[:600]}"))
    return found
