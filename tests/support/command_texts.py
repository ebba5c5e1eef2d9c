"""What `arkline why` and `arkline status` print for people, by the record's names."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.support.documents import counts
from tests.support.record_facts import Moment

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_STATE = r"in review|[\w-]+"
_NAMES = {"in review": "review", "notifying": "notify"}
"""States that a sentence does not call by their names in the record."""

_SPENT = r"(?:less than a second|[\d,]+ (?:second|minute|hour|day)s?)"
_OPENING = re.compile(
    rf"(?P<id>\w+) \((?P<name>.*?), (?:batch (?P<bid>\w+)|collection (?P<collection>\w+))\) "
    rf"(?:has been (?P<state>{_STATE}) for|(?:was )?(?P<ended>\w+)) (?P<spent>{_SPENT})(?: ago)?\."
)
_NO_BATCH = re.compile(rf"(?P<id>\w+) \((?P<name>.*?)\) (?:was )?(?P<ended>\w+) (?P<spent>{_SPENT}) ago\.")
_SENTENCES = tuple(
    map(
        re.compile,
        (
            rf"It failed(?: while (?P<failed_in>{_STATE}))? \((?P<kind>\w+): [^)]*\): (?P<message>.*?)\. "
            r"(?=Once the cause|The depositor)",
            r"The object is stored as (?P<ark>ark:\S+)",
            r"Its jobs have ended \((?P<jobs>.*?)\)",
            r"It waits for its jobs: (?P<jobs>.*?), of (?P<total>[\d,]+) in all",
            r"(?P<failures>[\d,]+) of (?P<total>[\d,]+) jobs? failed: (?P<kinds>[^.]*)",
            r"A step met a transient fault: (?P<message>.*?)\. Try (?P<next_try>\d+) of \d+ starts "
            rf"(?:within seconds|in {_SPENT})",
            rf"It was removed from ZooKeeper by \S+ {_SPENT} ago(?: \(.*?\))?",
        ),
    )
)


@dataclass(frozen=True)
class Spent:
    """The time since a moment, as people read it in an answer that was given between two moments."""

    since: datetime | Moment
    began: datetime
    ended: datetime

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, str):
            return False
        found = re.search(r"([\d,]+) ?([smhd])", other)
        if not found and other != "less than a second":
            return False
        number, unit = (int(found[1].replace(",", "")), _UNITS[found[2]]) if found else (0, 1)
        first, last = (
            (self.since.start, self.since.end) if isinstance(self.since, Moment) else (self.since, self.since)
        )
        least, most = (self.began - last).total_seconds(), (self.ended - first).total_seconds()
        return number * unit <= most and least < (number + 1) * unit

    __hash__ = None  # type: ignore[assignment]


def why(text: str) -> list[dict[str, Any]]:
    """The facts about the batch or the job, then those about the job that it names as an example."""
    told = re.split(r"What\s+helps:|No action is needed", text)[0]
    return [_situation(part) for part in " ".join(told.split()).split(" One of them: ")]


def _situation(text: str) -> dict[str, Any]:
    found = _OPENING.match(text) or _NO_BATCH.match(text)
    assert found is not None, text
    facts = {name: value for name, value in found.groupdict().items() if value}
    facts["state"] = facts.pop("ended", facts.get("state"))
    rest = text[found.end() :] + " "
    for sentence in _SENTENCES:
        if said := sentence.search(rest):
            facts |= {name: value for name, value in said.groupdict().items() if value}
            rest = rest.replace(said[0], "")
    for name in {"state", "failed_in"} & facts.keys():
        facts[name] = _NAMES.get(facts[name], facts[name])
    assert not re.search(r"\d", rest), f"a figure that the test does not read: {rest}"
    if failures := facts.pop("failures", ""):
        assert int(failures.replace(",", "")) == sum(counts(facts["kinds"]).values()), text
    for name in ("jobs", "kinds"):
        if name in facts:
            facts[name] = counts(facts[name])
    return facts


_LABELS = {
    "last success": "last_successful_status", "batch": "bid", "object": "ark", "local ids": "local_id",
    "creator": "who", "date": "when", "space": "space_needed", "reserved": "space_promised",
    "resumed": "retry_count", "folder": "working_dir",
}  # fmt: skip
_MOMENT = re.compile(rf"(\S+ \S+) \(({_SPENT}) ago\)(.*)")


def _labelled(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^(\w[\w ]*?) {2,}(.*?) *$", text, re.M)


def status(text: str) -> tuple[dict[str, Any], list[list[str]]]:
    """The facts of one job or batch, and the rows about its failed jobs."""
    head, _, rest = text.partition("\n")
    named, _, table = rest.partition("\nfailed job ")
    first = re.split(" {2,}", head.strip())
    facts: dict[str, Any] = {"id": first[0], "state": first[1]}
    if found := re.fullmatch(r"[\d.]+ % of ([\d,]+) jobs?", first[2] if len(first) > 2 else ""):
        facts["total"] = found[1]
    elif len(first) > 2:
        facts["name"] = first[2]
    for label, value in _labelled(named):
        if label not in ("you can", "archived", "download"):
            facts |= _fact(label, value)
    return facts, [re.split(" {2,}", row.strip()) for row in table.splitlines()[1:] if row.strip()]


def _fact(label: str, value: str) -> dict[str, Any]:
    if label in ("since", "submitted", "report"):
        found = _MOMENT.fullmatch(value)
        assert found is not None, value
        name = {"submitted": "submitted_at", "report": "sent_at"}.get(label, label)
        more: dict[str, Any] = {"submitter": found[3].removeprefix(" by ")} if label == "submitted" else {}
        more |= {"told": counts(found[3])} if label == "report" else {}
        return {name: found[1], f"spent_{name}": found[2], **more}
    if label == "jobs":
        return {"jobs": counts(value)}
    if label == "kind":
        return {"kind": value.partition(":")[0]}
    return {_LABELS.get(label, label): value}


def fleet(text: str) -> tuple[dict[str, Any], list[list[str]]]:
    """The facts of the whole, and the rows about the latest batches."""
    named, _, table = text.partition("\nbatch ")
    facts: dict[str, Any] = {}
    for label, value in _labelled(named):
        if label == "jobs":
            facts["jobs"] = counts(value)
        elif label == "batches":
            facts["batches"] = counts(value)
        elif label == "record":
            facts["recorded"] = value.split()[0]
        elif label == "outage":
            hosts = r"(?: on .* only| \(met on .*\))?"
            found = re.fullmatch(rf"(\S+){hosts} for ({_SPENT}), next probe [^:]*: (.*)", value)
            assert found is not None, value
            facts |= dict(zip(("service", "spent", "message"), found.groups(), strict=True))
    return facts, [re.split(" {2,}", row.strip()) for row in table.splitlines()[1:] if row.strip()]
