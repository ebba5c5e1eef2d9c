"""Checks of deposits in the inventory: their runs, with the findings for every file.

Rule: a file is fine only if a run says so. A file without a finding counts as not checked.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, update

from pipeline.checks import (
    FORMAT_IDENTIFICATION,
    SHOWN_FINDINGS,
    CheckFinding,
    CheckRun,
    CheckSummary,
    CheckVerdict,
    Overrule,
    Stage,
    worse,
)
from pipeline.inventory import growth
from pipeline.inventory.base import FileFinding
from pipeline.inventory.tables import (
    CHECK_VERSION_LENGTH,
    checks,
    files,
    findings,
    insert_if_new,
    objects,
    portions,
    versions,
)
from pipeline.names import PRODUCER
from pipeline.outcome import system

ROWS_PER_STATEMENT = 5_000


@dataclass(frozen=True)
class _Deposit:
    """The depositor's files in a version, by their path in the deposit."""

    object_id: int
    version_id: int
    file_ids: Mapping[str, int]
    downloaded: frozenset[str]
    """Without the files that came from an earlier version."""
    added: frozenset[str]
    """Those whose bytes the version added; an empty file has none."""

    def expected(self, stage: Stage) -> frozenset[str]:
        """What a run has to say something of: after storing, bytes that storage had already are not read."""
        # where it is not recorded what was downloaded, the new files are those that are known to be deposited
        return self.downloaded if stage is Stage.DOWNLOADED and self.downloaded else self.added


def add_checks(connection: Connection, ark: str, number: int, runs: Iterable[CheckRun]) -> None:
    """Enter the runs of a recorded version, except those that are already entered.

    A run is identified by its check, the check's version, its stage and its time. StepFailed(system) if the
    inventory has no such version.
    """
    query = (
        select(versions.c.inv_object_id, versions.c.id)
        .join(objects, objects.c.id == versions.c.inv_object_id)
        .where(objects.c.ark == ark, versions.c.number == number)
        .with_for_update(of=versions)  # of two runs that are entered at once, one is the last
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        raise system(
            f"the inventory has no version {number} of {ark}, which was checked: record the version first"
        )
    earlier = connection.scalars(select(checks.c.check_name).where(checks.c.inv_version_id == row.id))
    _enter(connection, row.inv_object_id, row.id, runs, set(earlier))


_FIRST_RUNS = checks.insert().returning(checks.c.id, sort_by_parameter_order=True)


def enter_first_runs(
    connection: Connection, object_id: int, version_id: int, runs: Sequence[CheckRun]
) -> dict[str, Counter[str]]:
    """Like `add_checks`, for a version that this transaction enters, with its files, and counts afterwards.

    Returns what to count: check -> format -> files.
    """
    if not runs:
        return {}
    deposit = _deposit(connection, object_id, version_id)
    last = {run.check: run for run in sorted(runs, key=lambda run: run.at)}
    rows = [
        {
            **_row(run, deposit),
            "last": last[run.check] is run,
            "counted": last[run.check] is run if run.event == FORMAT_IDENTIFICATION else None,
        }
        for run in runs
    ]
    entered = zip(runs, connection.scalars(_FIRST_RUNS, rows).all(), strict=True)
    own = (_findings(run, deposit, check_id) for run, check_id in entered)
    _enter_findings(connection, chain.from_iterable(own))
    return {
        run.check: Counter(one.code for one in run.findings if one.code and one.verdict is CheckVerdict.FINE)
        for run in last.values()
        if run.event == FORMAT_IDENTIFICATION
    }


def _enter(
    connection: Connection, object_id: int, version_id: int, runs: Iterable[CheckRun], known: set[str]
) -> None:
    """`known`: the checks of which the version has runs."""
    deposit, runs = _deposit(connection, object_id, version_id), tuple(runs)
    _enter_findings(connection, _entered(connection, deposit, runs, known))
    if any(run.event == FORMAT_IDENTIFICATION for run in runs):
        growth.count_runs(connection, version_id)


def _enter_findings(connection: Connection, rows: Iterable[dict[str, Any]]) -> None:
    for portion in portions(rows, ROWS_PER_STATEMENT):
        connection.execute(findings.insert(), portion)


def _entered(
    connection: Connection, deposit: _Deposit, runs: Iterable[CheckRun], known: set[str]
) -> Iterator[dict[str, Any]]:
    """Enter the runs one by one; yields the rows of their findings, which are entered together."""
    for run in runs:
        check_id = insert_if_new(connection, checks.c.id, _row(run, deposit))
        if check_id is None:
            continue
        if run.check in known:
            connection.execute(_NOT_LAST, {"version": deposit.version_id, "check": run.check})
        known.add(run.check)
        yield from _findings(run, deposit, check_id)


_DEPOSITED = select(
    files.c.id,
    files.c.pathname,
    files.c.landed_digest.is_not(None).label("downloaded"),
    (files.c.billable_size > 0).label("added"),
).where(files.c.inv_version_id == bindparam("version"), growth.DEPOSITED)


def _deposit(connection: Connection, object_id: int, version_id: int) -> _Deposit:
    rows = connection.execute(_DEPOSITED, {"version": version_id})
    ids, downloaded, added = {}, set(), set()
    for row in rows:
        path = row.pathname.removeprefix(PRODUCER)
        ids[path] = row.id
        if row.downloaded:
            downloaded.add(path)
        if row.added:
            added.add(path)
    return _Deposit(object_id, version_id, ids, frozenset(downloaded), frozenset(added))


def _row(run: CheckRun, deposit: _Deposit) -> dict[str, Any]:
    worst: dict[str, CheckVerdict] = {}
    for finding in run.findings:
        worst[finding.path] = worse(worst.get(finding.path, CheckVerdict.FINE), finding.verdict)
    silent = sum(path not in worst for path in deposit.expected(run.stage))
    counts = {verdict.value: sum(one is verdict for one in worst.values()) for verdict in CheckVerdict}
    overruled = run.overruled
    return {
        "inv_object_id": deposit.object_id,
        "inv_version_id": deposit.version_id,
        "check_name": run.check,
        "check_version": run.version[:CHECK_VERSION_LENGTH],
        "event": run.event,
        "stage": run.stage.value,
        "at": run.at,
        **counts,
        CheckVerdict.UNCHECKED.value: counts[CheckVerdict.UNCHECKED] + silent,
        "overruled_by": overruled and overruled.by,
        "overruled_at": overruled and overruled.at,
        "overruled_reason": overruled and overruled.reason,
        "last": True,
        "reported": None if run.notice else run.at,
    }


_LATEST = (
    select(checks.c.id)
    .where(checks.c.inv_version_id == bindparam("version"), checks.c.check_name == bindparam("check"))
    .order_by(checks.c.at.desc(), checks.c.id.desc())
    .limit(1)
)
_NOT_LAST = (
    update(checks)
    .where(
        checks.c.inv_version_id == bindparam("version"),
        checks.c.check_name == bindparam("check"),
        checks.c.last,
        checks.c.id != _LATEST.scalar_subquery(),
    )
    .values(last=False)
)
"""Of two last runs of a check over a version, mark the earlier one."""


def _findings(run: CheckRun, deposit: _Deposit, check_id: int) -> Iterator[dict[str, Any]]:
    own = {"inv_object_id": deposit.object_id, "inv_check_id": check_id}
    for finding in run.findings:
        file_id = deposit.file_ids.get(finding.path)
        yield {
            **own,
            "inv_file_id": file_id,
            "pathname": finding.path if file_id is None else None,
            "verdict": finding.verdict.value,
            "code": finding.code or None,
            "message": finding.message or None,
        }


@dataclass(frozen=True)
class UnreportedRun:
    """A run of which the operator has to be notified."""

    id: int
    ark: str
    number: int
    summary: CheckSummary


def unreported_runs(connection: Connection, limit: int) -> tuple[UnreportedRun, ...]:
    """The first runs whose notice has not been sent."""
    query = (
        select(checks, objects.c.ark, versions.c.number)
        .join(objects, objects.c.id == checks.c.inv_object_id)
        .join(versions, versions.c.id == checks.c.inv_version_id)
        .where(checks.c.reported.is_(None))
        .order_by(checks.c.id)
        .limit(limit)
    )
    return tuple(
        UnreportedRun(row.id, row.ark, row.number, _run(row, _not_fine(connection, row.id)))
        for row in connection.execute(query).all()
    )


def mark_run_reported(connection: Connection, run: int, at: datetime) -> None:
    connection.execute(update(checks).where(checks.c.id == run).values(reported=at))


@dataclass
class Checked:
    """The findings of checks in the versions of an object."""

    runs: defaultdict[int, list[CheckSummary]] = field(default_factory=lambda: defaultdict(list))
    """The key of a version -> its runs, in the order in which they were entered."""
    in_files: defaultdict[int, list[FileFinding]] = field(default_factory=lambda: defaultdict(list))
    """The key of a file -> the findings of the last run of each check."""


def checked(connection: Connection, object_id: int) -> Checked:
    result = Checked()
    rows = connection.execute(
        select(checks).where(checks.c.inv_object_id == object_id).order_by(checks.c.id)
    ).all()
    for row in rows:
        shown = _read(connection, row, result.in_files) if row.last else _not_fine(connection, row.id)
        result.runs[row.inv_version_id].append(_run(row, shown))
    return result


def findings_between(
    connection: Connection, version_id: int, first: int, last: int
) -> defaultdict[int, list[FileFinding]]:
    """The key of a file -> its findings, for the files of the version with these keys."""
    in_files: defaultdict[int, list[FileFinding]] = defaultdict(list)
    rows = connection.execute(
        select(checks).where(checks.c.inv_version_id == version_id, checks.c.last).order_by(checks.c.id)
    ).all()
    for run in rows:
        query = (
            select(findings)
            .where(findings.c.inv_check_id == run.id, findings.c.inv_file_id.between(first, last))
            .order_by(findings.c.id)
        )
        for row in connection.execute(query):
            in_files[row.inv_file_id].append(_finding(run.check_name, row))
    return in_files


def _read(
    connection: Connection, run: Row[Any], in_files: defaultdict[int, list[FileFinding]]
) -> tuple[CheckFinding, ...]:
    """Read all findings of a run into `in_files`; returns the first ones that are not fine.

    Equal findings of many files share one value.
    """
    same: dict[FileFinding, FileFinding] = {}
    shown: list[CheckFinding] = []
    query = (
        select(findings, files.c.pathname.label("stored_as"))
        .join(files, files.c.id == findings.c.inv_file_id, isouter=True)
        .where(findings.c.inv_check_id == run.id)
        .order_by(findings.c.id)
    )
    for row in connection.execute(query):
        if row.inv_file_id is not None:
            finding = _finding(run.check_name, row)
            in_files[row.inv_file_id].append(same.setdefault(finding, finding))
        if row.verdict != CheckVerdict.FINE and len(shown) < SHOWN_FINDINGS:
            shown.append(_shown(row))
    return tuple(shown)


def _not_fine(connection: Connection, check_id: int) -> tuple[CheckFinding, ...]:
    query = (
        select(findings, files.c.pathname.label("stored_as"))
        .join(files, files.c.id == findings.c.inv_file_id, isouter=True)
        .where(findings.c.inv_check_id == check_id, findings.c.verdict != CheckVerdict.FINE.value)
        .order_by(findings.c.id)
        .limit(SHOWN_FINDINGS)
    )
    return tuple(map(_shown, connection.execute(query)))


def _shown(row: Row[Any]) -> CheckFinding:
    path = row.pathname if row.stored_as is None else row.stored_as.removeprefix(PRODUCER)
    return CheckFinding(
        path=path, verdict=CheckVerdict(row.verdict), code=row.code or "", message=row.message or ""
    )


def _finding(check: str, row: Row[Any]) -> FileFinding:
    return FileFinding(check, CheckVerdict(row.verdict), row.code or "", row.message or "")


def _run(row: Row[Any], shown: tuple[CheckFinding, ...]) -> CheckSummary:
    overruled = None
    if row.overruled_at is not None:
        overruled = Overrule(by=row.overruled_by, at=row.overruled_at, reason=row.overruled_reason)
    return CheckSummary(
        check=row.check_name,
        version=row.check_version,
        event=row.event,
        stage=Stage(row.stage),
        at=row.at,
        fine=row.fine,
        found=row.found,
        unchecked=row.unchecked,
        findings=shown,
        overruled=overruled,
    )
