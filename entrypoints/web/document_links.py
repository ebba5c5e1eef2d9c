"""The links of the OpenAPI document: which answer has what another operation needs."""

from typing import Any, NamedTuple


class Link(NamedTuple):
    """From an answer to an operation; `parameters` are runtime expressions of OpenAPI."""

    source: str
    status: str
    name: str
    target: str
    parameters: dict[str, str]
    body: dict[str, str] | None = None


_BID = {"bid": "$response.body#/bid"}
_JID = {"jid": "$response.body#/jid"}
_ARK = {"ark": "$response.body#/ark"}
_UPLOAD = {"upload": "$response.body#/id"}
_SAME_OBJECT = {"ark": "$request.path.ark"}
_SAME_BATCH = {"bid": "$request.path.bid"}
_SAME_JOB = {"jid": "$request.path.jid"}
_SUBMITTED = ("201", "200")

LINKS = (
    *(
        Link("post /v1/batches", status, name, f"get /v1/batches/{{bid}}{rest}", _BID)
        for status in _SUBMITTED
        for name, rest in (("batch", ""), ("jobs", "/jobs"), ("why", "/why"), ("report", "/report"))
    ),
    Link("get /v1/batches", "200", "batch", "get /v1/batches/{bid}", {"bid": "$response.body#/rows/0/bid"}),
    Link("get /v1/batches/{bid}", "200", "jobs", "get /v1/batches/{bid}/jobs", _SAME_BATCH),
    Link("get /v1/batches/{bid}", "200", "history", "get /v1/batches/{bid}/history", _SAME_BATCH),
    Link("get /v1/batches/{bid}", "200", "cancel", "post /v1/batches/{bid}/cancel", _SAME_BATCH),
    *(
        Link(source, "200", "job", "get /v1/jobs/{jid}", {"jid": "$response.body#/rows/0/jid"})
        for source in ("get /v1/batches/{bid}/jobs", "get /v1/jobs")
    ),
    Link("get /v1/jobs/{jid}", "200", "batch", "get /v1/batches/{bid}", _BID),
    *(
        Link("get /v1/jobs/{jid}", "200", name, f"get /v1/jobs/{{jid}}/{name}", _SAME_JOB)
        for name in ("why", "timeline", "files", "premis")
    ),
    *(
        Link("get /v1/jobs/{jid}", "200", name, f"post /v1/jobs/{{jid}}/{name}", _SAME_JOB)
        for name in ("hold", "release", "resume", "fail", "delete")
    ),
    *(
        Link(
            f"get /v1/jobs/{{jid}}{rest}",
            "200",
            "object",
            "get /v1/objects/{ark}",
            _ARK,
        )
        for rest in ("", "/files")
    ),
    Link("get /v1/objects/{ark}", "200", "proof", "post /v1/objects/{ark}/proofs", _SAME_OBJECT),
    Link(
        "post /v1/objects/{ark}/proofs",
        "202",
        "proof",
        "get /v1/objects/{ark}/proofs/{proof}",
        {**_ARK, "proof": "$response.body#/id"},
    ),
    *(
        Link(
            "post /v1/uploads",
            "201",
            name,
            f"{method} /v1/uploads/{{upload}}",
            _UPLOAD,
        )
        for name, method in (("upload", "get"), ("offset", "head"), ("remove", "delete"))
    ),
    Link(
        "post /v1/bulk/{verb}/dry-run",
        "200",
        "carry_out",
        "post /v1/bulk/{verb}",
        {"verb": "$request.path.verb"},
        {"token": "$response.body#/token", "reason": "as in the dry run"},
    ),
    Link("get /v1/callbacks", "200", "job", "get /v1/jobs/{jid}", {"jid": "$response.body#/callbacks/0/jid"}),
    Link("post /v1/callbacks/{jid}/deliver", "200", "job", "get /v1/jobs/{jid}", _JID),
)


def with_links(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the links; KeyError if one names an operation or an answer that there is not."""
    for link in LINKS:
        answer = _operation(document, link.source)["responses"][link.status]
        described: dict[str, Any] = {
            "operationId": _operation(document, link.target)["operationId"],
            "parameters": link.parameters,
        }
        if link.body is not None:
            described["requestBody"] = link.body
        answer.setdefault("links", {})[link.name] = described
    return document


def _operation(document: dict[str, Any], spelled: str) -> dict[str, Any]:
    method, _, path = spelled.partition(" ")
    operation: dict[str, Any] = document["paths"][path][method]
    return operation
