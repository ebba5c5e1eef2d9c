"""What a button does, as a command and as requests to the API: `(command, requests)`.

Words in capital letters are for the reader to replace.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from pydantic_core import to_json

from operations.deposits.resubmission import Preview
from pipeline.states import Event

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
