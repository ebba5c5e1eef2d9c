"""Options and arguments that several commands share, and their parsers."""

import re
from typing import Annotated

import typer

from pipeline.states import JOB, JobState

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
ID = {"bid": re.compile(r"bid\d{10,}"), "jid": re.compile(r"jid\d{10,}")}


def read_duration(text: str) -> float:
    """A number with its unit.

    >>> read_duration("90s"), read_duration("2h")
    (90.0, 7200.0)
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"'{text}' is not a duration; write 90s, 30m, 2h or 3d")
    return float(match[1]) * _UNITS[match[2]]


def read_bid(text: str) -> str:
    return _read_id(text, "bid", "the id of a batch looks like bid0000000001")


def read_jid(text: str) -> str:
    return _read_id(text, "jid", "the id of a job looks like jid0000000001")


def read_id(text: str) -> str:
    """The id of a batch or of a job."""
    if text.startswith("bid"):
        return read_bid(text)
    return _read_id(text, "jid", "an id looks like bid0000000001 (a batch) or jid0000000001 (a job)")


def _read_id(text: str, prefix: str, explained: str) -> str:
    if not ID[prefix].fullmatch(text):
        raise typer.BadParameter(f"'{text}' is not an id: {explained}")
    return text


Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document, and nothing else, on standard output.")
]
Bid = Annotated[str, typer.Argument(metavar="BID", parser=read_bid, help="A batch, such as bid0000000001.")]
Jid = Annotated[str, typer.Argument(metavar="JID", parser=read_jid, help="A job, such as jid0000000001.")]
Id = Annotated[str, typer.Argument(metavar="BID|JID", parser=read_id, help="A batch or a job.")]
OptionalId = Annotated[
    str | None,
    typer.Argument(metavar="BID|JID", parser=read_id, help="A batch or a job; default: the whole fleet."),
]
OptionalBid = Annotated[
    str | None,
    typer.Argument(metavar="BID", parser=read_bid, help="A batch; default: the queue."),
]
Profile = Annotated[str | None, typer.Option("--profile", "-p", help="Only jobs of this collection.")]
Batch = Annotated[
    str | None, typer.Option("--batch", "-b", metavar="BID", parser=read_bid, help="Only jobs of this batch.")
]
State = Annotated[
    JobState | None,
    typer.Option(
        "--state",
        "-s",
        metavar="STATE",
        help="Only jobs in this state: " + ", ".join(JOB.where(lambda facts: facts.queued)) + ".",
    ),
]
OlderThan = Annotated[
    float | None,
    typer.Option(
        metavar="DURATION",
        parser=read_duration,
        help="Only jobs that have not moved for this long: 90s, 30m, 2h, 3d.",
    ),
]
