"""Runs the checks that a profile asks for, and decides what their findings mean for the job."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from hashlib import sha256
from itertools import groupby

from pipeline import causes
from pipeline.attempt import Attempt
from pipeline.causes import FailureCause
from pipeline.checking import journal
from pipeline.checking.journal import Head, Journal, Writer
from pipeline.checking.process import Checker, Opening
from pipeline.checks import (
    NAMED_FINDINGS,
    RECORDED_CODES,
    Action,
    Check,
    CheckedFile,
    CheckFinding,
    CheckRule,
    CheckRun,
    CheckSummary,
    CheckVerdict,
    Obstacle,
    Overrule,
    Stage,
    Stopping,
    first_named,
)
from pipeline.humanize import counted
from pipeline.outcome import content
from pipeline.records import HistoryEntry, now
from pipeline.working_storage.capacity import full_waits
from pipeline.working_storage.mount import ContentGone
from pipeline.working_storage.workspace import Workspace

DIGEST_LENGTH = 16

SERVICE_DEATHS = 3
"""Attempts in which the check's service died at a file, after which the file is not given to it again."""


AtHand = Callable[[CheckedFile], AbstractContextManager[CheckedFile]]
"""Provides a file while it is checked."""


HoldPlace = Callable[[CheckRule], AbstractContextManager[None]]
"""Holds one of the fleet's places of a check; Later if none is free."""


def unlimited(rule: CheckRule) -> AbstractContextManager[None]:
    del rule
    return nullcontext()


@dataclass(frozen=True)
class Checking:
    """The checks of one job, and what one attempt runs them with."""

    rules: tuple[CheckRule, ...]
    checker: Checker
    workspace: Workspace
    attempt: Attempt
    history: tuple[HistoryEntry, ...]
    place: HoldPlace = unlimited

    def at(self, stage: Stage) -> tuple[CheckRule, ...]:
        return tuple(rule for rule in self.rules if rule.after is stage)

    @cached_property
    def overruled(self) -> Mapping[str, Overrule]:
        """Digest of findings -> the last decision about them."""
        return {
            finding: Overrule(by=entry.by, at=entry.at, reason=entry.reason)
            for entry in self.history
            for finding in (entry.overruled or "").split()
        }


def run(checking: Checking, stage: Stage, files: Sequence[CheckedFile]) -> tuple[CheckRun, ...]:
    """Run the checks of this stage, in the order of the profile; what an earlier attempt did is kept.

    ServiceDown if a check is not installed on this host, does not start, or lacks its service. ContentGone if
    the files vanish meanwhile: what was not checked for that reason is no finding.
    """
    return _run(checking, checking.at(stage), stage, files)


def version_of(checking: Checking, rule: CheckRule) -> str:
    """The version of the check on this host; ServiceDown as `run`."""
    return checking.checker.version(checking.checker.opening(rule), checking.attempt)


def run_again(
    checking: Checking,
    rule: CheckRule,
    files: Sequence[CheckedFile],
    at_hand: AtHand,
) -> CheckRun:
    """Run a check over the files of a recorded version; `at_hand` provides one file at a time.

    ServiceDown as `run`; the next call continues a run that ended early.
    """
    (run,) = _run(checking, (rule,), Stage.RECORDED, files, at_hand)
    return run


def noted(checking: Checking, digests: Mapping[str, str]) -> tuple[CheckRun, ...]:
    """The completed runs of all stages, with the findings of the files that have these digests by path.

    Of several runs the one that covers most of these files counts, and then the last: content may have
    changed between two downloads, and a check may have run again in another version. A run that is lost with
    the working directory is absent: what it found is not known.
    """
    ended = [one for one in journal.read_all_of(checking.workspace.folder) if one.ended is not None]
    runs = []
    for rule in checking.rules:
        own = (one for one in ended if one.head.check == rule.name and one.findings_of(digests))
        runs += sorted((_completed(checking, rule, one, digests) for one in own), key=_coverage)[-1:]
    return tuple(runs)


def _coverage(run: CheckRun) -> tuple[int, datetime]:
    return len({finding.path for finding in run.findings}), run.at


def _run(
    checking: Checking,
    rules: Iterable[CheckRule],
    stage: Stage,
    files: Sequence[CheckedFile],
    at_hand: AtHand | None = None,
) -> tuple[CheckRun, ...]:
    workspace = checking.workspace
    known, content = journal.read_all_of(workspace.folder), journal.content_of(files)
    digests = {file.path: file.sha512 for file in files}
    runs = list[CheckRun]()
    noting = journal.writing(workspace.folder, workspace.attempt.name)
    with full_waits("noting the findings of a check"), noting as writer:
        for rule in rules:
            opening = checking.checker.opening(rule)
            own = [one for one in known if one.head.check == rule.name]
            # which of them counts depends on the version; without any, the run says it
            version = checking.checker.version(opening, checking.attempt) if own or not files else ""
            head = Head(
                check=rule.name,
                event=getattr(opening.kind, "event", Check.event),
                stage=stage,
                settings=sha256(opening.settings.encode()).hexdigest(),
                version=version,
                content=content,
            )
            same = [one for one in own if one.head == head]
            earlier = same[0] if same else Journal(head, (), None)
            if earlier.ended is None:
                deaths = Counter(sha512 for one in same for sha512 in set(one.deaths))
                fatal = {sha512 for sha512, times in deaths.items() if times >= SERVICE_DEATHS}
                with checking.place(rule):
                    earlier = _continue(checking, opening, earlier, files, fatal, at_hand, writer)
            runs.append(_completed(checking, rule, earlier, digests))
    return tuple(runs)


def _continue(  # noqa: PLR0913 - the facts of one run
    checking: Checking,
    opening: Opening,
    earlier: Journal,
    files: Sequence[CheckedFile],
    fatal: Collection[str],
    at_hand: AtHand | None,
    writer: Writer,
) -> Journal:
    """Check the files that the earlier journal does not have, in a new journal that has all.

    Files with a `fatal` digest are not checked. ContentGone if a file vanished before it was checked.
    """
    done = earlier.checked(files)
    first = {file.path for file in files[:done]}
    before = (line for line in earlier.lines if line.finding and line.finding.path in first)
    writer.begin(earlier.head, before)

    def on_finding(file: CheckedFile, finding: CheckFinding) -> None:
        if finding.verdict is CheckVerdict.UNCHECKED and not file.source.exists():
            raise ContentGone(f"{file.source} is missing")
        writer.add(file, finding)

    check = partial(
        checking.checker.run,
        opening,
        attempt=checking.attempt,
        on_finding=on_finding,
        on_death=writer.note_death,
        on_version=writer.learn,
    )
    for is_fatal, group in groupby(files[done:], lambda file: file.sha512 in fatal):
        if is_fatal:
            for file in group:
                writer.add(file, _not_given(file))
            continue
        if at_hand is None:
            check(tuple(group))
            continue
        for file in group:
            with at_hand(file) as given:
                check((given,))
    checking.attempt.check()
    return writer.end()


def _not_given(file: CheckedFile) -> CheckFinding:
    message = f"the service of the check ended {SERVICE_DEATHS} times while it checked this file"
    return CheckFinding(
        path=file.path, verdict=CheckVerdict.UNCHECKED, code=Obstacle.SERVICE_DIED, message=message
    )


def _completed(checking: Checking, rule: CheckRule, ended: Journal, digests: Mapping[str, str]) -> CheckRun:
    run = CheckRun(
        check=rule.name,
        version=ended.head.version,
        event=ended.head.event,
        stage=ended.head.stage,
        at=ended.ended or now(),
        findings=ended.findings_of(digests),
    )
    decision = checking.overruled.get(_digest(rule, run, digests)) if checking.overruled else None
    late = run.stage is not Stage.DOWNLOADED and rule.on_found is Action.WARN
    notice = late and any(finding.verdict is CheckVerdict.FOUND for finding in run.findings)
    return run.model_copy(update={"overruled": decision, "notice": notice})


def _action(rule: CheckRule, finding: CheckFinding) -> Action:
    match finding.verdict:
        case CheckVerdict.FOUND:
            return rule.on_found
        case CheckVerdict.UNCHECKED:
            return rule.unchecked
        case CheckVerdict.FINE:
            return Action.NOTE


def _that(rule: CheckRule, run: CheckRun, action: Action) -> list[CheckFinding]:
    return [finding for finding in run.findings if _action(rule, finding) is action]


def _digest(rule: CheckRule, run: CheckRun, digests: Mapping[str, str]) -> str:
    """Of the findings that stop the job: of the same findings about the same bytes it is the same."""
    stopping = sorted((f.path, digests[f.path], f.verdict, f.code) for f in _that(rule, run, Action.STOP))
    return sha256(json.dumps([rule.name, *stopping]).encode()).hexdigest()[:DIGEST_LENGTH]


@dataclass(frozen=True)
class Judged:
    """What the findings of runs mean for the job."""

    remarks: tuple[str, ...] = ()
    """What the depositor should look at."""
    summaries: tuple[CheckSummary, ...] = ()
    """The runs, with the findings that the profile does not only note."""


NOTHING_FOUND = Judged()


def judge(checking: Checking, runs: Iterable[CheckRun], files: Sequence[CheckedFile]) -> Judged:
    """What the findings mean; StepFailed(content), with the summaries, if one stops the job.

    All checks have run: the depositor learns of all findings at once.
    """
    digests = {file.path: file.sha512 for file in files}
    rules = {rule.name: rule for rule in checking.rules}
    stops, remarks, summaries = list[str](), list[str](), list[CheckSummary]()
    met = list[FailureCause]()
    for run in runs:
        rule = rules[run.check]
        stopping, warning = _that(rule, run, Action.STOP), _that(rule, run, Action.WARN)
        stop = None
        if stopping and run.overruled is None:
            stop = _stop(stopping, _digest(rule, run, digests))
            stops.append(f"{_sentence(run, stopping)} (finding {stop.finding})")
            named = sorted({finding.code for finding in stopping if finding.code})
            met.append(causes.CHECK_STOPPED(check=run.check, findings=", ".join(named) or "no code"))
        elif stopping:
            remarks.append(f"{_sentence(run, stopping)}; a person of the repository decided to keep it")
        if warning:
            remarks.append(_sentence(run, warning))
        summaries.append(CheckSummary.of(run, (*stopping, *warning), stop))
    if stops:
        failure = content(f"{'; '.join(stops)}: replace or remove the files, then submit again")
        failure.cause = causes.common(met)
        failure.checks = tuple(summaries)
        raise failure
    return Judged(tuple(remarks), tuple(summaries))


def _stop(findings: Sequence[CheckFinding], digest: str) -> Stopping:
    codes = tuple(dict.fromkeys(finding.code for finding in findings))
    return Stopping(finding=digest, codes=codes if len(codes) <= RECORDED_CODES else None)


def _sentence(run: CheckRun, findings: Sequence[CheckFinding]) -> str:
    """What the check found, by verdict, with the first files."""
    problems = [finding for finding in findings if finding.verdict is CheckVerdict.FOUND]
    unchecked = [finding for finding in findings if finding.verdict is CheckVerdict.UNCHECKED]
    said = (
        (problems, f"the check {run.check} found something in"),
        (unchecked, f"the check {run.check} did not check"),
    )
    return "; ".join(f"{start} {_named(some)}" for some, start in said if some)


def _named(findings: Sequence[CheckFinding]) -> str:
    files = counted(len({finding.path for finding in findings}), "file")
    more = len(findings) - NAMED_FINDINGS
    return f"{files}: {first_named(findings)}" + (f" and {more:,} more" if more > 0 else "")
