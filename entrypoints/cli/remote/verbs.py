"""Verbs over the API: the outcome is that of the same verb beside the stack."""

from collections.abc import Sequence

from entrypoints.cli.remote.client import Client, path_of
from operations.bulk import Outcome
from operations.bulk_plans import BulkPlan, Receipt
from operations.holds import HoldResult
from operations.job_list import JobFilter
from operations.operator import VerbResult
from operations.profile_renewal import ProfileRenewal
from operations.verbs import check_kind
from operations.workers import Drained, Workers
from pipeline.errors import UsageRefused
from pipeline.states import Event, JobState


def _seen(version: int | None) -> dict[str, str]:
    """The header of a verb that must not meet a later state than its caller saw."""
    return {} if version is None else {"If-Match": f'"{version}"'}


def act_on_one(
    client: Client,
    event: Event,
    name: str,
    reason: str,
    *,
    version: int | None = None,
    to: JobState | None = None,
) -> Outcome:
    body: dict[str, object] = {"reason": reason}
    if to is not None:
        body["to"] = to
    headers = _seen(version)
    if name.startswith("bid") and event is Event.RESUME:
        return client.post(f"/v1/batches/{name}/resume", Outcome, body, **headers)
    check_kind(name, event)
    done = client.post(f"{path_of(name)}/{event}", VerbResult, body, **headers)
    return Outcome(verb=event, done=(done,))


def dry_run_of_batch(client: Client, verb: str, bid: str, version: int | None = None) -> Outcome:
    return client.post(f"/v1/batches/{bid}/{verb}/dry-run", Outcome, {}, **_seen(version))


def plan(client: Client, event: Event, names: Sequence[str], conditions: JobFilter) -> BulkPlan:
    """What the verb would do to these jobs or, without names, to those that the filter admits."""
    if any(name.startswith("bid") for name in names):
        raise UsageRefused("over the API, batches are named one at a time")
    search = {
        "state": conditions.state,
        "bid": conditions.bid,
        "collection": conditions.profile,
        "cause": conditions.cause,
        "older_than": conditions.older_than,
    }
    select = {"ids": list(names)} if names else {"search": search}
    planned = client.post(f"/v1/bulk/{event}/dry-run", BulkPlan, {"select": select})
    if names or conditions.state is not None:
        return planned
    return planned.model_copy(update={"refused": ()})  # the filter means those to which it may happen


def as_outcome(planned: BulkPlan) -> Outcome:
    return Outcome(verb=planned.verb, dry_run=True, done=planned.expected, refused=planned.refused)


def carry_out(client: Client, planned: BulkPlan, reason: str) -> Outcome:
    body = {"token": planned.token, "reason": reason}
    receipt = client.post(f"/v1/bulk/{planned.verb}", Receipt, body)
    return Outcome(
        verb=planned.verb,
        done=receipt.done,
        refused=(*planned.refused, *receipt.refused, *receipt.moved),
        untried=receipt.untried,
        stopped=receipt.stopped,
    )


def cancel(client: Client, bid: str, reason: str) -> Outcome:
    return client.post(f"/v1/batches/{bid}/cancel", Outcome, {"reason": reason})


def hold(client: Client, path: str, reason: str) -> HoldResult:
    """Of the queue or of a collection: `/v1/queue/pause`, `/v1/collections/NAME/hold`."""
    return client.post(path, HoldResult, {"reason": reason})


def workers(client: Client) -> Workers:
    return client.get("/v1/workers", Workers)


def renew_profile(client: Client, bid: str, reason: str, version: int | None) -> ProfileRenewal:
    return client.post(
        f"/v1/batches/{bid}/renew-profile", ProfileRenewal, {"reason": reason}, **_seen(version)
    )


def drain(client: Client, worker: str, reason: str, *, undo: bool) -> Drained:
    verb = "undrain" if undo else "drain"
    return client.post(f"/v1/workers/{worker}/{verb}", Drained, {"reason": reason})
