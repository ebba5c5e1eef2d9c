"""Acts: what buttons do. One table for the buttons, their forms, and their spellings.

A button does what its API route does, recorded with the person and the reason. In its spelling as a command
and as requests, words in capitals are placeholders.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any, get_args

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from pydantic_core import to_json

from entrypoints.render.fleet_status import FOLLOWS_LATER
from entrypoints.render.remedies import spelled
from entrypoints.web.context import context_of
from entrypoints.web.limits import SlowWork
from entrypoints.web.routes.fleet import maintenance_router
from entrypoints.web.routes.verbs import CANCEL, WITH_REASON, router
from operations.deposits.resubmission import Preview
from operations.fleet.fleet import Drained
from operations.verbs.bulk import Outcome
from operations.verbs.holds import HoldResult
from operations.verbs.verbs import VerbResult
from pipeline.errors import Action, Remedy, UsageRefused
from pipeline.humanize import counted
from pipeline.principal import Principal
from pipeline.states import Event, JobState


@dataclass(frozen=True)
class Act:
    """One kind of button. `label`, `path` and `said` use `{}` for the target."""

    code: str
    label: str
    path: str
    """The path of its API route, below /v1."""
    said: str = ""
    """The result as a sentence; empty: the changes are listed for every job and batch."""
    unfollowed: str = ""
    """The message if the worker has not followed yet."""
    needs_reason: bool = False
    danger: bool = False
    text: str = ""
    """Its effect, for an act that is neither an event nor a remedy."""

    @property
    def doc(self) -> str:
        if self.code in _EVENTS:
            return Event(self.code).doc
        return self.text or Action(self.code).doc

    def path_of(self, target: str) -> str:
        return self.path.format(target, "batches" if target.startswith("bid") else "jobs")


@dataclass(frozen=True)
class Button:
    """An act on one target, as drawn on the page."""

    act: Act
    target: str
    version: int | None = None
    first: bool = False
    """Whether the act helps most; drawn with emphasis."""
    findings: tuple[str, ...] = ()
    """The findings that it overrules."""

    @property
    def label(self) -> str:
        return self.act.label.format(self.target)

    @property
    def cli(self) -> str:
        """The act as a shell command."""
        line = spelled(self.act.code, self.target, self.findings)
        return f"{line} --reason WHY" if self.act.needs_reason and "--reason" not in line else line

    @property
    def curl(self) -> str:
        """The act as a request to the API."""
        overruled = {"findings": self.findings} if self.findings else {}
        return post(self.act.path_of(self.target), {"reason": "WHY", **overruled})


@dataclass(frozen=True)
class Advice:
    """A remedy without a button: a shell command for the right machine, or something done outside arkline."""

    doc: str
    cli: str = ""
    link: str = ""
    name: str = ""
    """The text of the link."""
    first: bool = False
    """As of a Button."""


def of_remedies(remedies: Iterable[Remedy], version: int | None = None) -> tuple[Button | Advice, ...]:
    """Buttons for what this page can do, advice for the rest; `version`: of the explained record."""
    shown: list[Button | Advice] = []
    for remedy in remedies:
        act = ACTS.get(remedy.action)
        if act is not None:
            on_itself = remedy.target.startswith(("jid", "bid")) and remedy.action in _WITH_VERSION
            own = version if on_itself else None
            shown.append(Button(act, remedy.target, own, first=not shown, findings=remedy.findings))
        else:
            link = _LINKS.get(remedy.action, "").format(remedy.target)
            name = "Open"
            if remedy.action is Action.SUBMIT_AGAIN and remedy.target:
                link, name = f"/batches/{remedy.target}/again", "Correct and deposit again"
            spelling = "" if link else spelled(remedy.action, remedy.target)
            shown.append(Advice(remedy.action.doc, spelling, link, name, first=not shown))
    return tuple(shown)


def of_verbs(verbs: Iterable[Event], target: str, version: int | None) -> tuple[Button, ...]:
    """Buttons for everything that an operator may do with the job or batch now."""
    return tuple(Button(ACTS[verb], target, version) for verb in sorted(verbs) if verb in ACTS)


def without(buttons: Iterable[Button], shown: Iterable[Button | Advice]) -> tuple[Button, ...]:
    """The buttons that are not on the page already."""
    there = {(item.act.code, item.target) for item in shown if isinstance(item, Button)}
    return tuple(button for button in buttons if (button.act.code, button.target) not in there)


async def perform(  # noqa: PLR0913 - the fields of a form
    request: Request,
    caller: Principal,
    code: str,
    target: str,
    version: int | None,
    reason: str,
    findings: Sequence[str] = (),
) -> str:
    """Do what the act's route does; returns the result as a sentence. Raises what the route raises."""
    act = ACTS.get(code)
    if act is None:
        raise UsageRefused(f"there is no act '{code}'")
    if act.needs_reason and not reason:
        raise UsageRefused(f"'{act.label.format(target)}' needs a reason: it is kept in the history")
    path = f"/v1/{act.path_of(target)}"
    matches = ((route.endpoint, match) for route in _ROUTES if (match := route.path_regex.match(path)))
    endpoint: Any
    endpoint, match = next(matches, (None, None))
    if match is None:
        raise UsageRefused(f"'{act.label.format(target)}' cannot be done to '{target}'")
    takes = signature(endpoint).parameters
    values = {"request": request, "caller": caller, **match.groupdict()}
    if "body" in takes:
        overruled = {"findings": tuple(findings)} if act.code == Action.OVERRULE else {}
        values["body"] = get_args(takes["body"].annotation)[0](reason=reason, **overruled)
    if "version" in takes:
        values["version"] = version

    perform = getattr(endpoint, "perform", None)
    if perform is None:
        return _sentence(act, target, await run_in_threadpool(partial(endpoint, **values)))
    threads: SlowWork = getattr(context_of(request), endpoint.pool)
    result = await threads.run(request, caller.name, partial(perform, values), endpoint.seconds)
    return _sentence(act, target, result)


def _sentence(act: Act, target: str, result: object) -> str:
    """One sentence: `jid0000000001 was failed and is now processing`."""
    if isinstance(result, Outcome) and len(result.done) == 1 and not result.refused:
        (result,) = result.done
    if isinstance(result, VerbResult):
        later = "" if result.sent else " Redis does not answer: the work continues once Redis is back."
        note = f": {result.note}" if result.note else ""
        return f"{result.id} was {result.was} and is now {result.now}{note}.{later}"
    if isinstance(result, Drained) and not result.followed:
        return act.unfollowed.format(target)
    if not isinstance(result, Outcome):
        released = len(result.released.done) if isinstance(result, HoldResult) and result.released else 0
        return act.said.format(target, counted(released, "job or batch", "jobs and batches"))
    parts = [f"{result.verb}: {len(result.done)} done"]
    if result.refused:
        parts.append(f"{len(result.refused)} refused ({result.refused[0].id}: {result.refused[0].message})")
    if result.untried:
        parts.append(f"{result.untried} not tried: {result.stopped or 'stopped'}")
    return ", ".join(parts) + "."


_EVENTS = frozenset(Event)
_ROUTES = tuple(
    route for route in (*router.routes, *maintenance_router.routes) if isinstance(route, APIRoute)
)

_TABLE = (
    Act(Event.RELEASE, "Release", "{1}/{0}/release"),
    Act(Event.RESUME, "Resume", "{1}/{0}/resume"),
    Act(Action.OVERRULE, "Resume and keep the files", "{1}/{0}/resume", needs_reason=True, danger=True),
    Act(Event.APPROVE, "Approve", "{1}/{0}/approve"),
    Act(Event.REJECT, "Reject", "{1}/{0}/reject", needs_reason=True, danger=True),
    Act(Event.HOLD, "Hold", "{1}/{0}/hold"),
    Act(Event.FAIL, "Stop the job", "{1}/{0}/fail", needs_reason=True, danger=True),
    Act(Event.DELETE, "Delete", "{1}/{0}/delete", needs_reason=True, danger=True),
    Act(Event.UPDATE_REPORT, "Send an update of the report", "batches/{0}/update-report"),
    Act(Action.RESUME_BATCH, "Resume the failed jobs", "batches/{0}/resume"),
    Act(Action.CANCEL, "Stop the batch", "batches/{0}/cancel", needs_reason=True, danger=True),
    Act(Action.REPAIR, "Repair the record", "{1}/{0}/repair", needs_reason=True, danger=True),
    Act(
        Action.RENEW_PROFILE,
        "Use the changed profile",
        "batches/{0}/renew-profile",
        "The remaining jobs of {0} use the profile as its file is now.",
    ),
    Act(
        "pause",
        "Pause the queue",
        "queue/pause",
        "The queue is paused: no new job starts. Jobs that have started continue.",
        needs_reason=True,
        text="Stop starting new jobs.",
    ),
    Act(Action.UNPAUSE, "Start new jobs again", "queue/unpause", "The queue starts new jobs again."),
    Act(
        Action.HOLD_COLLECTION,
        "Put {} on hold",
        "collections/{0}/hold",
        "Collection {0} is on hold: its jobs do not start. Jobs that have started continue.",
        needs_reason=True,
    ),
    Act(
        Action.RELEASE_COLLECTION,
        "Release {}",
        "collections/{0}/release",
        "Collection {0} is not on hold any more; {1} released.",
    ),
    Act(
        "drain",
        "Drain {}",
        "workers/{0}/drain",
        "Worker {0} accepts no new task, also after a restart; stop it once it is idle.",
        f"The drain of {{0}} is recorded, but {{0}} has not followed yet; {FOLLOWS_LATER}.",
        needs_reason=True,
        text="Stop the worker from accepting new tasks.",
    ),
    Act(
        Action.UNDO_DRAIN,
        "Undo the drain of {}",
        "workers/{0}/undrain",
        "Worker {0} accepts tasks again.",
        f"{{0}} is no longer drained, but has not followed yet; {FOLLOWS_LATER}.",
    ),
)
ACTS = {act.code: act for act in _TABLE}

_WITH_VERSION = frozenset(Event) | {Action.RENEW_PROFILE, Action.OVERRULE}
"""Acts whose version is that of the target's own status."""

_LINKS: dict[Action, str] = {
    Action.SHOW_REPORT: "/batches/{}/report",
    Action.SHOW_STATUS: "/",
    Action.SHOW_JOBS: "/jobs",
    Action.SHOW_OBJECTS: "/objects",
    Action.SHOW_FAILURES: "/failures",
    Action.SHOW_REVIEWS: f"/jobs?state={JobState.REVIEW}",
    Action.SUBMIT_AGAIN: "/deposits/new",
    Action.FIXITY_REPORT: "/stops#fixity",
}


Spelling = tuple[str, tuple[str, ...]]

_LOGIN = '-H "Authorization: Bearer $ARKLINE_TOKEN"'


def post(path: str, body: Mapping[str, object]) -> str:
    """A request to the API; `path`: below `/v1/`."""
    given = shlex.quote(to_json(body).decode())
    return f'curl -X POST {_LOGIN} -H "Content-Type: application/json" -d {given} "$ARKLINE_URL/v1/{path}"'


def deposit(collection: str) -> Spelling:
    """Deposit a file from the depositor's computer: upload it, then submit the upload's id."""
    upload = f'curl -T FILE -X POST {_LOGIN} "$ARKLINE_URL/v1/uploads?name=FILE"'
    submit = post("batches", {"profile": collection, "payload_url": "upload:ID/FILE"})
    return f"arkline submit FILE --profile {shlex.quote(collection)} --what TITLE", (upload, submit)


def deposit_again(preview: Preview) -> Spelling:
    """Deposit the manifest of the previewed objects, which has been uploaded already."""
    kind = preview.type
    body = {"profile": preview.collection, "payload_url": preview.url, "type": kind}
    collection = shlex.quote(preview.collection)
    return f"arkline submit {preview.url} --profile {collection} --type {kind.label}", (
        post("batches", body),
    )


def bulk_preview(cause: str, verb: str, findings: Sequence[str] = ()) -> Spelling:
    """`findings`: those to overrule."""
    line = f"arkline {verb} --cause {cause}{_overruling(findings)}{' --reason WHY' if findings else ''}"
    return f"{line} --dry-run", (_dry_run(verb, (), cause, findings),)


def ticked(code: str, name: str) -> Spelling:
    """The dry run of an act on rows of a list; `name`: the placeholder for their ids."""
    verb = "resume" if code == Action.RESUME_BATCH else code
    event = Event.FAIL if verb == CANCEL else verb
    return f"arkline {verb} {name} --dry-run", (_dry_run(event, (name,), "", ()),)


def bulk(verb: str, names: Sequence[str], cause: str = "", findings: Sequence[str] = ()) -> Spelling:
    """A verb for all jobs of a cause, or for these jobs or batches.

    The second request has the token from the first one's answer.
    """
    reason = " --reason WHY" if verb in (*WITH_REASON, CANCEL) or findings else ""
    event = Event.FAIL if verb == CANCEL else verb
    done = post(f"bulk/{event}", {"token": "TOKEN", "reason": "WHY"})
    # the command `cancel` takes one batch
    chosen = [f"--cause {cause}"] if cause else names if verb == CANCEL else [" ".join(names)]
    lines = (f"arkline {verb} {one}{_overruling(findings)}{reason}" for one in chosen)
    return "\n".join(lines), (_dry_run(event, names, cause, findings), done)


def _overruling(findings: Sequence[str]) -> str:
    return "".join(f" --overrule {shlex.quote(finding)}" for finding in findings)


def proof(ark: str, version: int) -> Spelling:
    return f"arkline object {ark} --version {version}", (post(f"objects/{ark}/proofs", {"version": version}),)


def recheck(ark: str) -> Spelling:
    return f"arkline recheck {ark}", (post(f"objects/{ark}/rechecks", {}),)


def notify() -> Spelling:
    """A subscription to one's own deposits."""
    body = {"events": ["done", "failed"], "mail": "ADDRESS"}
    return "arkline notify add --mail ADDRESS --event done --event failed", (post("notifications", body),)


def subscription_acts() -> Spelling:
    """A test of a subscription, and its end."""
    requests = (
        post("notifications/SUBSCRIPTION/test", {}),
        f'curl -X DELETE {_LOGIN} "$ARKLINE_URL/v1/notifications/SUBSCRIPTION"',
    )
    return "arkline notify test SUBSCRIPTION\narkline notify remove SUBSCRIPTION", requests


def _dry_run(verb: str, names: Sequence[str], cause: str, findings: Sequence[str]) -> str:
    overruled = {"findings": findings} if findings else {}
    select = {"search": {"cause": cause}} if cause else {"ids": names}
    return post(f"bulk/{verb}/dry-run", {"select": select, **overruled})
