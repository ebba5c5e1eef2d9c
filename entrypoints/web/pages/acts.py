"""Acts: what a button does. One table for the buttons, for the forms that they send, and for their spellings.

Every act calls an operation, as the command line does, and is recorded with the person and the reason. In its
spelling as a command and as requests, words in capital letters are for the reader to replace.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pydantic_core import to_json

from entrypoints.render.fleet import FOLLOWS_LATER
from entrypoints.render.remedies import command
from operations.deposits.resubmission import Preview
from operations.fleet import fleet
from operations.run import Run
from operations.site import Site
from operations.verbs import collection_profiles, holds
from operations.verbs.bulk import Outcome, cancel, resume_batch
from operations.verbs.verbs import VerbResult, act, repair
from pipeline.errors import Action, Remedy, UsageRefused
from pipeline.humanize import counted
from pipeline.principal import Principal
from pipeline.states import Event


@dataclass(frozen=True)
class Pressed:
    """A button that a person pressed; `version`: of the status that the person saw, if it has one."""

    site: Site
    principal: Principal
    target: str
    version: int | None
    reason: str
    run: Run


Perform = Callable[[Pressed], str]
"""Gives the result in one sentence."""


@dataclass(frozen=True)
class Act:
    """One kind of button. `label`, `cli` and `api`, a path below /v1, have `{}` for the target."""

    code: str
    label: str
    doc: str
    api: str
    cli: str
    perform: Perform
    needs_reason: bool = False
    danger: bool = False


@dataclass(frozen=True)
class Button:
    """An act on one target, as the page draws it."""

    act: Act
    target: str
    version: int | None = None
    first: bool = False
    """The act that helps most; drawn with emphasis."""

    @property
    def label(self) -> str:
        return self.act.label.format(self.target)

    @property
    def cli(self) -> str:
        """The same act as a line for a shell."""
        reason = ' --reason "WHY"' if self.act.needs_reason else ""
        return self.act.cli.format(self.target).strip() + reason

    @property
    def curl(self) -> str:
        """The same act as a request to the API."""
        return post(self.act.api.format(self.target), {"reason": "WHY"})


@dataclass(frozen=True)
class Advice:
    """A remedy that is no button: a command for a shell on the right machine, or something done outside."""

    doc: str
    cli: str = ""
    link: str = ""


def of_remedies(remedies: Iterable[Remedy], version: int | None = None) -> tuple[Button | Advice, ...]:
    """Buttons for what this page can do, advice for what it cannot; `version`: of the explained record."""
    shown: list[Button | Advice] = []
    for remedy in remedies:
        act = ACTS.get(remedy.action)
        if act is not None:
            on_itself = remedy.target.startswith(("jid", "bid")) and remedy.action in _WITH_VERSION
            shown.append(Button(act, remedy.target, version if on_itself else None, first=not shown))
        else:
            link = _LINKS.get(remedy.action, "").format(remedy.target)
            shown.append(Advice(remedy.action.doc, "" if link else command(remedy), link))
    return tuple(shown)


def of_verbs(verbs: Iterable[Event], target: str, version: int | None) -> tuple[Button, ...]:
    """A button for everything that an operator may do with the job or the batch now."""
    return tuple(Button(ACTS[verb], target, version) for verb in sorted(verbs) if verb in ACTS)


def without(buttons: Iterable[Button], shown: Iterable[Button | Advice]) -> tuple[Button, ...]:
    """The buttons that do not stand on the page already."""
    there = {(item.act.code, item.target) for item in shown if isinstance(item, Button)}
    return tuple(button for button in buttons if (button.act.code, button.target) not in there)


def run(code: str, pressed: Pressed) -> str:
    """Carry out the act; its result as a sentence. Raises what the operation raises."""
    act = ACTS.get(code)
    if act is None:
        raise UsageRefused(f"there is no act '{code}'")
    if act.needs_reason and not pressed.reason:
        raise UsageRefused(f"'{act.label.format(pressed.target)}' needs a reason: it is kept in the history")
    return act.perform(pressed)


def sentence(outcome: Outcome) -> str:
    """One sentence: `jid0000000001 was failed and is now processing`."""
    if len(outcome.done) == 1 and not outcome.refused:
        return sentence_of(outcome.done[0])
    parts = [f"{outcome.verb}: {len(outcome.done)} done"]
    if outcome.refused:
        parts.append(
            f"{len(outcome.refused)} refused ({outcome.refused[0].id}: {outcome.refused[0].message})"
        )
    if outcome.untried:
        parts.append(f"{outcome.untried} not tried: {outcome.stopped or 'stopped'}")
    return ", ".join(parts) + "."


def sentence_of(result: VerbResult) -> str:
    """`jid0000000001 was failed and is now processing`."""
    later = "" if result.sent else " Redis does not answer: the work continues once Redis is back."
    return f"{result.id} was {result.was} and is now {result.now}.{later}"


def _verb(event: Event) -> Perform:
    def perform(it: Pressed) -> str:
        result = act(
            it.site, it.principal, it.target, event, reason=it.reason, version=it.version, run=it.run
        )
        return sentence_of(result)

    return perform


def _resume_batch(it: Pressed) -> str:
    outcome = resume_batch(it.site, it.principal, it.target, reason=it.reason, version=it.version, run=it.run)
    return sentence(outcome)


def _cancel(it: Pressed) -> str:
    return sentence(
        cancel(it.site, it.principal, it.target, reason=it.reason, version=it.version, run=it.run)
    )


def _repair(it: Pressed) -> str:
    return sentence_of(repair(it.site, it.principal, it.target, reason=it.reason))


def _release_collection(it: Pressed) -> str:
    name = it.target
    result = holds.release_collection(it.site, it.principal, name, reason=it.reason, run=it.run)
    released = len(result.released.done) if result.released else 0
    return (
        f"Collection {name} is not on hold any more; {counted(released, 'job or batch', 'jobs and batches')} "
        "released."
    )


def _hold_collection(it: Pressed) -> str:
    holds.hold_collection(it.site, it.principal, it.target, reason=it.reason)
    return f"Collection {it.target} is on hold: its jobs do not start. Jobs that have started continue."


def _pause(it: Pressed) -> str:
    holds.pause(it.site, it.principal, reason=it.reason)
    return "The queue is paused: no new job starts. Jobs that have started continue."


def _unpause(it: Pressed) -> str:
    holds.unpause(it.site, it.principal, reason=it.reason)
    return "The queue starts new jobs again."


def _renew_profile(it: Pressed) -> str:
    collection_profiles.renew(it.site, it.principal, it.target, reason=it.reason, version=it.version)
    return f"The remaining jobs of {it.target} use the profile as its file is now."


def _drain(it: Pressed) -> str:
    worker = it.target
    if not fleet.drain(it.site, it.principal, worker, reason=it.reason).followed:
        return f"The drain of {worker} is recorded, but {worker} has not followed yet; {FOLLOWS_LATER}."
    return f"Worker {worker} accepts no new task, also after a restart; stop it once it is idle."


def _undo_drain(it: Pressed) -> str:
    worker = it.target
    if not fleet.drain(it.site, it.principal, worker, reason=it.reason, undo=True).followed:
        return f"{worker} is no longer drained, but has not followed yet; {FOLLOWS_LATER}."
    return f"Worker {worker} accepts tasks again."


def _on(event: Event, label: str, kind: str = "jobs", **options: bool) -> Act:
    return Act(
        event, label, event.doc, f"{kind}/{{}}/{event}", f"arkline {event} {{}}", _verb(event), **options
    )


ACTS: dict[str, Act] = {
    act.code: act
    for act in (
        _on(Event.RELEASE, "Release"),
        _on(Event.RESUME, "Resume"),
        _on(Event.HOLD, "Hold"),
        _on(Event.FAIL, "Stop the job", needs_reason=True, danger=True),
        _on(Event.DELETE, "Delete", needs_reason=True, danger=True),
        _on(Event.UPDATE_REPORT, "Send an update of the report", "batches"),
        Act(
            Action.RESUME_BATCH,
            "Resume the failed jobs",
            Action.RESUME_BATCH.doc,
            "batches/{}/resume",
            "arkline resume --batch {} --state failed",
            _resume_batch,
        ),
        Act(
            Action.CANCEL,
            "Stop the batch",
            Action.CANCEL.doc,
            "batches/{}/cancel",
            "arkline cancel {}",
            _cancel,
            needs_reason=True,
            danger=True,
        ),
        Act(
            Action.REPAIR,
            "Repair the record",
            Action.REPAIR.doc,
            "bulk/repair",
            "arkline repair {}",
            _repair,
            needs_reason=True,
            danger=True,
        ),
        Act(
            Action.RENEW_PROFILE,
            "Use the changed profile",
            Action.RENEW_PROFILE.doc,
            "batches/{}/renew-profile",
            "arkline profile renew {}",
            _renew_profile,
        ),
        Act(
            "pause",
            "Pause the queue",
            "Stop starting new jobs.",
            "queue/pause",
            "arkline pause",
            _pause,
            True,
        ),
        Act(
            Action.UNPAUSE,
            "Start new jobs again",
            Action.UNPAUSE.doc,
            "queue/unpause",
            "arkline unpause",
            _unpause,
        ),
        Act(
            Action.HOLD_COLLECTION,
            "Put {} on hold",
            Action.HOLD_COLLECTION.doc,
            "collections/{}/hold",
            "arkline hold --collection {}",
            _hold_collection,
            needs_reason=True,
        ),
        Act(
            Action.RELEASE_COLLECTION,
            "Release {}",
            Action.RELEASE_COLLECTION.doc,
            "collections/{}/release",
            "arkline release --collection {}",
            _release_collection,
        ),
        Act(
            "drain",
            "Drain {}",
            "Stop the worker from accepting new tasks.",
            "workers/{}/drain",
            "arkline drain {}",
            _drain,
            needs_reason=True,
        ),
        Act(
            Action.UNDO_DRAIN,
            "Undo the drain of {}",
            Action.UNDO_DRAIN.doc,
            "workers/{}/undrain",
            "arkline drain --undo {}",
            _undo_drain,
        ),
    )
}

OF_WORKERS = frozenset({"drain", Action.UNDO_DRAIN})
"""The codes of acts that ask workers, which may not answer."""


def is_long(code: str, target: str) -> bool:
    """Whether the act concerns all jobs of a batch or a collection, or all files of a job."""
    return target.startswith("bid") or code in (Action.RELEASE_COLLECTION, Event.DELETE, Action.REPAIR)


_WITH_VERSION = frozenset(Event) | {Action.RENEW_PROFILE}
"""Acts whose version is that of the target's own status."""

_LINKS: dict[Action, str] = {
    Action.SHOW_REPORT: "/batches/{}/report",
    Action.SHOW_STATUS: "/",
    Action.SHOW_JOBS: "/jobs",
    Action.SHOW_FAILURES: "/failures",
    Action.SUBMIT_AGAIN: "/deposits/new",
    Action.FIXITY_REPORT: "/stops#fixity",
}


Spelling = tuple[str, tuple[str, ...]]

WITH_REASON = frozenset({Event.DELETE, Event.FAIL})
_LOGIN = '-H "Authorization: Bearer $ARKLINE_TOKEN"'


def post(path: str, body: Mapping[str, object]) -> str:
    """A request to the API; `path`: below `/v1/`."""
    given = shlex.quote(to_json(body).decode())
    return f'curl -X POST {_LOGIN} -H "Content-Type: application/json" -d {given} "$ARKLINE_URL/v1/{path}"'


def deposit(collection: str) -> Spelling:
    """Of a file of the depositor's computer: it is uploaded, and then deposited by the id of the upload."""
    upload = f'curl -T FILE -X POST {_LOGIN} "$ARKLINE_URL/v1/uploads?name=FILE"'
    submit = post("batches", {"profile": collection, "payload_url": "upload:ID/FILE"})
    return f"arkline submit FILE --profile {shlex.quote(collection)} --what TITLE", (upload, submit)


def deposit_again(preview: Preview) -> Spelling:
    """Of the manifest of the objects that the preview shows, which is an upload already."""
    kind = preview.type
    body = {"profile": preview.collection, "payload_url": preview.url, "type": kind}
    collection = shlex.quote(preview.collection)
    return f"arkline submit {preview.url} --profile {collection} --type {kind.label}", (
        post("batches", body),
    )


def bulk_preview(cause: str, verb: str) -> Spelling:
    return f"arkline {verb} --cause {cause} --dry-run", (_dry_run(cause, verb),)


def bulk(cause: str, verb: str) -> Spelling:
    """The second request has the token of the first one's answer."""
    reason = " --reason WHY" if verb in WITH_REASON else ""
    done = post(f"bulk/{verb}", {"token": "TOKEN", "reason": "WHY"})
    return f"arkline {verb} --cause {cause}{reason}", (_dry_run(cause, verb), done)


def proof(ark: str, version: int) -> Spelling:
    return f"arkline object {ark} --version {version}", (post(f"objects/{ark}/proofs", {"version": version}),)


def _dry_run(cause: str, verb: str) -> str:
    return post(f"bulk/{verb}/dry-run", {"select": {"search": {"cause": cause}}})
