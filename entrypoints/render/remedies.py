"""The commands for remedies and buttons; the only module that spells them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from pipeline.errors import Action, Remedy
from pipeline.states import Event

_COMMANDS: dict[str, str] = {
    Event.HOLD: "arkline hold {}",
    Event.FAIL: "arkline fail {} --reason WHY",
    "pause": "arkline pause",
    "drain": "arkline drain {}",
    Action.UNPAUSE: "arkline unpause",
    Action.RELEASE: "arkline release {}",
    Action.RELEASE_COLLECTION: "arkline release --collection {}",
    Action.HOLD_COLLECTION: "arkline hold --collection {}",
    Action.RESUME: "arkline resume {}",
    Action.OVERRULE: "arkline resume {} --overrule {} --reason WHY",
    Action.RESUME_BATCH: "arkline resume --batch {} --state failed",
    Action.APPROVE: "arkline approve {}",
    Action.REJECT: "arkline reject {} --reason WHY",
    Action.SHOW_REVIEWS: "arkline jobs --state review",
    Action.CANCEL: "arkline cancel {} --reason WHY",
    Action.DELETE: "arkline delete {} --reason WHY",
    Action.REPAIR: "arkline repair {}",
    Action.UPDATE_REPORT: "arkline update-report {}",
    Action.SHOW_REPORT: "arkline report {}",
    Action.RENEW_PROFILE: "arkline profile renew {}",
    Action.UNDO_DRAIN: "arkline drain --undo {}",
    Action.SHOW_STATUS: "arkline status {}",
    Action.SHOW_JOBS: "arkline jobs",
    Action.SHOW_OBJECTS: "arkline objects",
    Action.SHOW_PROFILES: "arkline profile list",
    Action.SHOW_FAILURES: "arkline jobs --state failed",
    Action.CLEAN_UP: "arkline cleanup",
    Action.AUDIT: "arkline check --record",
    Action.RECONCILE: "arkline check --repair",
    Action.RESTORE_INVENTORY: "arkline restore {} --inventory",
    Action.FIXITY_REPORT: "arkline fixity report",
    Action.CHECK_FIXITY: "arkline fixity check",
    Action.INITIALIZE: "arkline init",
    Action.BACK_UP: "arkline backup {}",
    Action.SUBMIT_AGAIN: "arkline submit PATH --profile NAME",
    Action.START_WORKER: "arkline worker --queues {}",
    Action.START_BEAT: "arkline beat",
}
"""Action -> command; actions without a command are done outside arkline."""


def command(remedy: Remedy) -> str:
    """The shell command for a remedy; empty if there is none."""
    return spelled(remedy.action, remedy.target, remedy.findings)


def spelled(code: str, target: str, findings: Iterable[str] = ()) -> str:
    """The shell command for a button's code; `findings`: those to overrule."""
    overruled = " --overrule ".join(map(shlex.quote, findings)) or "FINDING"
    return _COMMANDS.get(code, "").format(target, overruled).strip()


def hints(remedies: Iterable[Remedy]) -> Iterable[str]:
    """One line per remedy: the command, a colon and its effect."""
    for remedy in remedies:
        spelled = command(remedy)
        doc = remedy.action.doc[:1].lower() + remedy.action.doc[1:].rstrip(".")
        yield f"{spelled}: {doc}" if spelled else doc
