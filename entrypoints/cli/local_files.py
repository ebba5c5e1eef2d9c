"""A deposit of files of this machine over the API: its judgement, the upload, its submission.

A terminal shows a progress bar.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import rich.progress

import operations.deposits.submission
from entrypoints.cli.api import Client
from entrypoints.render import screen
from operations.deposits import dry_run_result, local_deposit
from operations.deposits.dry_run_result import DryRunResult
from pipeline import humanize, names
from pipeline.records import Record, Submission
from pipeline.uploads.stored import UploadedFile
from pipeline.working_storage import capacity

if TYPE_CHECKING:
    from operations.deposits.local_deposit import LocalDeposit, Payload, Uploader
    from operations.deposits.submission import Submitted

HIDDEN_NAMED = 3
"""Hidden files that a remark names."""


def upload(deposit: LocalDeposit, uploader: Uploader, key: str) -> Payload:
    if not sys.stderr.isatty():
        return local_deposit.upload_deposit(deposit, uploader, key)
    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.DownloadColumn(),
        rich.progress.TransferSpeedColumn(),
        rich.progress.TimeRemainingColumn(),
    )
    with rich.progress.Progress(*columns, console=screen.err(), transient=True) as meter:
        task = meter.add_task("uploading", total=deposit.bytes)
        return local_deposit.upload_deposit(deposit, uploader, key, lambda size: meter.advance(task, size))


def describe(deposit: LocalDeposit) -> None:
    """What is deposited, for the person at the terminal."""
    files = humanize.counted(len(deposit.files), "file")
    objects = humanize.counted(deposit.objects, "object")
    screen.note(
        f"{deposit.source}: {objects} of {files}, {capacity.in_units(deposit.bytes)}, submitted as "
        f"{deposit.type.label}",
        "",
    )
    remark(deposit)


def remark(deposit: LocalDeposit) -> None:
    """What the person may not mean to deposit, or to leave out."""
    if deposit.hidden:
        screen.note(f"hidden files are deposited, too: {_first(deposit.hidden)}")
    if deposit.empty:
        screen.note(f"folders without files are not deposited: {_first(deposit.empty)}")


def _first(paths: Sequence[str]) -> str:
    more = len(paths) - HIDDEN_NAMED
    return ", ".join(map(names.quote_name, paths[:HIDDEN_NAMED])) + (f" and {more} more" if more > 0 else "")


def known(judged: DryRunResult) -> None:
    """Say which objects are here already, and whether they get a version."""
    for identifier, ark in judged.known.items():
        consequence = "this deposit becomes its next version"
        if any(ark in trouble.message for trouble in judged.failures):
            consequence = "this deposit will be refused, because --new-version was not given"
        screen.note(f"'{identifier}' is {ark} already: {consequence}")


class _Answer(Record):
    bid: str
    replayed: bool = False
    note: str = ""


def _deposit(submission: Submission) -> dict[str, object]:
    """The submission as the body of `POST /v1/batches`."""
    given = submission.model_dump(mode="json", exclude_none=True)
    names = {
        "profile_name": "profile",
        "payload_filename": "name",
        "submission_mode": "mode",
        "erc_who": "who",
        "erc_what": "what",
        "erc_when": "when",
        "erc_where": "where",
    }
    left_out = {"idempotency_key", "owner", "submitted_at"}
    return {names.get(name, name): value for name, value in given.items() if name not in left_out}


def _headers(submission: Submission) -> dict[str, str]:
    key = submission.idempotency_key
    return {"Idempotency-Key": key} if key else {}


def submit(client: Client, submission: Submission) -> Submitted:
    headers = _headers(submission)
    answer = client.post("/v1/batches", _Answer, _deposit(submission), **headers)
    return operations.deposits.submission.Submitted(
        bid=answer.bid, again=answer.replayed, sent=not answer.note
    )


def dry_run(client: Client, submission: Submission, ask: int) -> DryRunResult:
    """`ask`: manifests and files that are asked for at most; a web process has a limit of its own."""
    path = f"/v1/batches?dry_run=true&ask={ask}"
    return client.post(path, DryRunResult, _deposit(submission), **_headers(submission))


def dry_run_of_files(client: Client, submission: Submission, deposit: LocalDeposit | None) -> DryRunResult:
    """What the deposit of these files would do; without them, only whether the object is here already."""
    body = {
        "profile": submission.profile_name,
        "source": submission.payload_url,
        "type": submission.type,
        "mode": submission.submission_mode,
        "new_version": bool(submission.new_version),
        "priority": submission.priority,
    }
    bodies = (
        {**body, "plan": plan.model_dump(mode="json")} for plan in dry_run_result.plans(submission, deposit)
    )
    path, headers = "/v1/batches/files/dry-run", _headers(submission)
    return dry_run_result.together([client.post(path, DryRunResult, one, **headers) for one in bodies])


class _Begun(Record):
    id: str


class _Arrived(Record):
    name: str
    size: int
    sha512: str


@dataclass(frozen=True)
class ApiUploader:
    """An `operations.deposits.local_deposit.Uploader`."""

    client: Client

    def begin(self, key: str) -> str:
        headers = {"Idempotency-Key": key} if key else {}
        return _Begun.model_validate_json(self.client.request("POST", "/v1/uploads", headers=headers)).id

    def put(self, upload: str, name: str, chunks: Iterable[bytes], size: int) -> UploadedFile:
        answer = self.client.request(
            "PUT",
            f"/v1/uploads/{upload}/{quote(name, safe='/')}",
            data=chunks,
            # with a length the site refuses before it reads
            headers={"Content-Type": "application/octet-stream", "Content-Length": str(size)},
        )
        arrived = _Arrived.model_validate_json(answer)
        return UploadedFile(name=arrived.name, size=arrived.size, sha512=arrived.sha512)
