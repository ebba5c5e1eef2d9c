"""What pages, reports and mails for people show, by the record's names."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import EmailMessage
from html.parser import HTMLParser
from typing import Any

_READ = ("h1", "h2", "p", "dt", "dd", "th", "td")
_NOTHING = ("", "none", "none yet", "not given", "not known")

_NAMES = {
    "Collection": "collection", "Local ids": "local_id", "Creator": "who", "Title": "title", "Date": "when",
    "Source": "payload_url", "Payload": "payload", "Deposit": "payload", "Type": "payload_type",
    "Submitter": "submitter", "ARK": "ark", "Space": "space_needed", "Note": "note", "Submitted": "submitted",
    "State of": "reported_at", "Last report": "sent_at", "Job": "jid", "File": "name", "Object": "name",
    "State": "state", "What happened": "message", "Reason": "message", "Please check": "remark",
    "Who has to act": "kind", "Message": "message", "Time": "at", "Event": "named", "By": "by",
    "What to do": "advice", "Seconds": "seconds", "History": "history", "Local id": "local_id",
    "Files": "files", "Result": "result",
}  # fmt: skip
"""The record's names for the titles that people read."""


def _named(title: str) -> str:
    return _NAMES[title[:1].upper() + title[1:]]


@dataclass
class Page(HTMLParser):
    """The headings, paragraphs, facts and tables of a page; a time is its moment."""

    text: dict[str, list[str]] = field(default_factory=lambda: {tag: [] for tag in _READ})
    tables: list[list[list[str]]] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._inside: list[str] = []
        self._unread = False
        """In the text of a time, whose moment was read, or of a button."""

    @classmethod
    def read(cls, document: str) -> "Page":
        page = cls()
        page.feed(document)
        return page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in _READ:
            self._inside.append(tag)
            self.text[tag].append("")
        elif tag == "time" and given.get("data-local") != "minute":  # that one is part of a sentence
            self._unread = True
            self._add(given["datetime"] or "")
        elif tag == "button":
            self._unread = True
        elif tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag == "br":
            self._add(" ")
        elif tag == "svg" and given["class"] == "ribbon":
            self.pictures.append(given["aria-label"] or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("time", "button"):
            self._unread = False
        elif self._inside and tag == self._inside[-1]:
            self._inside.pop()
            said = " ".join(self.text[tag][-1].split())
            self.text[tag][-1] = said
            if tag in ("td", "th"):
                self.tables[-1][-1].append(said)

    def handle_data(self, data: str) -> None:
        if not self._unread:
            self._add(data)

    def _add(self, text: str) -> None:
        if self._inside:
            self.text[self._inside[-1]][-1] += text

    def facts(self) -> dict[str, str | None]:
        pairs = zip(self.text["dt"], self.text["dd"], strict=True)
        return {_named(title): None if said in _NOTHING else said for title, said in pairs}

    def remark(self) -> str:
        said = (p.removeprefix("Please check: ") for p in self.text["p"] if p.startswith("Please check: "))
        return next(said, "")

    def rows(self, number: int) -> Iterator[dict[str, str]]:
        """The rows of a table under the titles of its columns."""
        titles, *rows = self.tables[number]
        for row in rows:
            yield dict(zip(map(_named, titles), row, strict=True))


def job_page(page: Page) -> dict[str, Any]:
    standing = re.fullmatch(
        r"(\S+) · (\S+) (?:for )?(\S+?)(?: ago)? · batch (\S+) · collection (\S+)", page.text["p"][0]
    )
    assert standing is not None, page.text["p"][0]
    first = dict(zip(("jid", "state", "since", "bid", "collection"), standing.groups(), strict=True))
    return {"name": page.text["h1"][0], "remark": page.remark(), **first, **page.facts()}


def batch_page(page: Page) -> dict[str, Any]:
    standing = re.fullmatch(
        r"(\S+) · (\S+) (?:for )?(\S+?)(?: ago)? · collection (\S+) · submitted (\S+)(?: by (.*))?",
        page.text["p"][0],
    )
    assert standing is not None, page.text["p"][0]
    names = ("bid", "status", "since", "collection", "submitted_at", "submitter")
    stored = re.fullmatch(r"(\d+) of (\d+) objects? stored(?:, (\d+) not stored)?", page.text["h2"][0])
    counted: dict[str, Any] = {"total": None}
    if stored:
        counted = {"stored": int(stored[1]), "total": int(stored[2]), "lost": int(stored[3] or 0)}
    facts = page.facts()
    facts["payload_url"] = facts.pop("payload")
    first = dict(zip(names, standing.groups(), strict=True))
    return {"name": page.text["h1"][0], "jobs": counts(page.pictures[0]), **first, **counted, **facts}


def counts(text: str) -> dict[str, int]:
    """`2 completed, 1 failed`."""
    return {state: int(number) for number, state in re.findall(r"(\d+) (\w+)", text)}


_OF = re.compile(
    r"(\S+): (?:(\d+) of (\d+) objects? completed(.*?)\.|no objects could .*)(?: Changes since (.*):)?"
)


def headline(text: str) -> dict[str, Any]:
    found = _OF.fullmatch(text)
    assert found is not None, text
    others = counts((found[4] or "").replace("in progress", "unfinished"))
    return {
        "bid": found[1],
        "since": found[5],
        "counts": {"total": int(found[3] or 0), "completed": int(found[2] or 0), **others},
    }


def report_page(document: str) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The facts and the lines of a report as HTML: of the web page, or of the mail."""
    page = Page.read(document)
    if page.text["dt"]:
        facts, tables = page.facts(), range(len(page.tables))
    else:
        facts = {_named(name): value for name, value in page.tables[0]}
        tables = range(1, len(page.tables))
    titles = [title.split(":")[0] for title in page.text["h2"] if re.search(r": \d+$", title)]
    lines = []
    for title, number in zip(titles, tables, strict=True):
        page.tables[number][0] = [
            "ARK" if column.lower() == "object" else column for column in page.tables[number][0]
        ]
        lines += [row | {"section": title} for row in page.rows(number)]
    return headline(page.text["h1"][0]) | facts, lines


_LINE = re.compile(
    r'(?P<jid>jid\w+)(?: (?P<name>[^\s":]+))?(?: "(?P<title>.*?)")?(?: (?P<ark>ark:\S+?))?'
    r"(?: \(local id (?P<local_id>.*?)\))?(?:: (?P<message>.*))?"
)


def report_text(text: str) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The facts and the lines of a report as text."""
    head, *parts = re.split(r"\n\n(?=[A-Z][\w ]+: [\d,]+\n)", text.partition("\nThe complete lists")[0])
    first, _, named = head.partition("\n\n")
    facts = headline(" ".join(first.split()))
    unwrapped = re.sub(r"\n {9,}", " ", named)
    facts |= {
        _named(name): value.strip() for name, value in re.findall(r"^([A-Z][\w ]+):(.*)$", unwrapped, re.M)
    }
    lines = []
    for part in parts:
        title = part.partition(":")[0]
        for entry in re.split(r"\n+  (?=jid)", part)[1:]:
            said, *labelled = re.split(r"\n      (?=(?:what happened|what to do|please check):)", entry)
            found = _LINE.fullmatch(" ".join(said.split()))
            assert found is not None, entry
            line = {name: value for name, value in found.groupdict().items() if value}
            for label in labelled:
                name, _, value = label.partition(":")
                line[_named(name)] = " ".join(value.split())
            lines.append(line | {"section": title})
    return facts, lines


_CONFIRMED = re.compile(
    r"We received your submission (?P<bid>\S+): (?P<total>[\d,]+) objects? will be created\. .*\. "
    r"Collection: (?P<collection>\S+) Deposit: (?P<payload>.*?)(?: Note: (?P<note>.*))?"
)


def confirmation(text: str) -> dict[str, Any]:
    """The facts of a confirmation, as text or as the paragraphs of a page."""
    found = _CONFIRMED.fullmatch(" ".join(text.split()))
    assert found is not None, text
    return found.groupdict()


def notice(text: str) -> dict[str, str]:
    """The labelled lines of a notice to the operator."""
    lines = re.findall(r"^(\w[\w ]*): +(.*)$", text, re.M)
    return {{"To do": "advice", "Seen by": "hosts"}.get(name, name.lower()): value for name, value in lines}


def attached_lines(mail: EmailMessage) -> Iterator[dict[str, Any]]:
    for part in mail.iter_attachments():
        data = part.get_payload(decode=True)
        assert isinstance(data, bytes)
        for lines in json.loads(data).values():
            yield from lines
