"""Repair, clean-up, callbacks and fixity over the API."""

from collections.abc import Sequence

from pydantic import TypeAdapter

from entrypoints.cli.remote.client import Client, RemoteFault, path_of, quoted
from operations.bulk import Outcome, Refusal
from operations.callbacks import CallbackAnswer, OwedPage
from operations.fixity import FixityReport
from operations.operator import VerbResult
from operations.working_storage import CleanUp
from pipeline.errors import UsageRefused


def repair(client: Client, names: Sequence[str], reason: str) -> Outcome:
    """One after the other; a refusal of one of several leaves the others."""
    done, refused = [], []
    for name in names:
        try:
            done.append(client.post(f"{path_of(name)}/repair", VerbResult, {"reason": reason}))
        except (RemoteFault, UsageRefused) as error:
            if len(names) == 1:
                raise
            refused.append(Refusal(id=name, message=str(error)))
    return Outcome(verb="repair", done=tuple(done), refused=tuple(refused))


def clean_up(client: Client, older_than: float | None, reason: str, *, dry_run: bool) -> CleanUp:
    body = {"reason": reason, "older_than": older_than, "dry_run": dry_run}
    return client.post("/v1/space/clean-up", CleanUp, body)


def owed_callbacks(client: Client, limit: int) -> OwedPage:
    return client.get("/v1/callbacks", OwedPage, limit=limit)


def deliver_callback(client: Client, jid: str, reason: str) -> CallbackAnswer:
    return client.post(f"/v1/callbacks/{jid}/deliver", CallbackAnswer, {"reason": reason})


def send_test_callback(client: Client, profile: str) -> CallbackAnswer:
    return client.post(f"/v1/collections/{quoted(profile)}/test-callback", CallbackAnswer, {})


def fixity_report(client: Client) -> FixityReport:
    return TypeAdapter(FixityReport).validate_json(client.request("GET", "/v1/fixity").content)
