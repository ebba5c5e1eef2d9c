"""Shows the findings of an audit on a terminal."""

from entrypoints.cli import console as screen
from entrypoints.cli.console import Column
from entrypoints.cli.render.humanize import counted
from operations.audit import AuditView, StoreFinding, StoreProblem

_STORE_PROBLEMS = {
    StoreProblem.NOT_ENTERED: "the inventory lacks the version",
    StoreProblem.OTHER_OBJECT: "the inventory has the job under another object, or from another job",
    StoreProblem.NOT_STORED: "storage lacks the version",
    StoreProblem.DIFFERENT: "storage has another version than the inventory",
    StoreProblem.UNREADABLE: "storage cannot read the object",
    StoreProblem.DAMAGED: "the bytes in storage are damaged",
}


def audit(view: AuditView) -> None:
    if view.findings:
        screen.table(
            view.findings,
            Column("where", lambda finding: finding.path, long=True),
            Column("what", lambda finding: finding.problem, long=True),
        )
        number = counted(len(view.findings), "finding")
        screen.note(f"{number}; checked twice, so a move in progress is not listed")
    if view.stores:
        screen.table(
            view.stores,
            Column("job", lambda finding: finding.jid),
            Column("version", lambda finding: _version(finding), long=True),
            Column("what", lambda finding: _what(finding), long=True),
            Column("detail", lambda finding: finding.detail, long=True),
        )
        screen.note("`arkline reconcile`, beside the stack, compares all versions, and says what to do", "")
    jobs = counted(view.compared, "completed job")
    if view.unreachable:
        screen.note(f"storage and inventory were not compared: {view.unreachable}", "yellow")
    elif not view.complete:
        screen.note(f"interrupted: {jobs} compared with storage and inventory", "yellow")
    elif not (view.findings or view.stores):
        compared = f" {jobs} compared with storage and inventory." if view.compared else ""
        screen.say(f"Everything agrees.{compared}", "green")


def _what(finding: StoreFinding) -> str:
    what = _STORE_PROBLEMS[finding.problem]
    return f"{what}; the job failed: `arkline resume {finding.jid}` enters it" if finding.job_failed else what


def _version(finding: StoreFinding) -> str:
    return f"{finding.ark or 'no ARK'}{f' version {finding.version}' if finding.version else ''}"
