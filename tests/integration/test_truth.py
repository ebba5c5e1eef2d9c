"""Every field that is shown, on every surface, equals the record after random histories, or is absent.

The record is read with kazoo and json alone. `MODEL_EXAMPLES=30 ./dev test tests/integration/test_truth.py`
walks longer, and elsewhere each time.
"""

import csv
import html
import io
import os
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from operations.board.values import EVERYTHING, JobSearch
from pipeline.principal import Role
from pipeline.settings import Settings
from tasks import retention
from tasks.app import make_context
from tasks.worker_context import WorkerContext
from tests.integration.test_retention import later
from tests.integration.test_sent_reports import mailed
from tests.servers.receiver import Receiver
from tests.support import cli
from tests.support.boards import until
from tests.support.random_histories import Walk, walked
from tests.support.record_facts import Record, line_facts, same
from tests.support.step_context import collection
from tests.support.web import Caller, serving_board
from zkstate.session import Session

pytestmark = [pytest.mark.timeout(1800), pytest.mark.no_cover]

Fact = tuple[str, str, str]

BOARD = ("GET /v1/jobs", "GET /v1/batches/BID/jobs")
REMOTE = "arkline jobs over the API"
ENDED_OR_WAITING = ("completed", "pending")

_LISTS = ("GET /v1/jobs", "GET /v1/batches/BID/jobs", "arkline jobs over the API")
_UNREAD = ("completed", "pending")

FALSE: dict[Fact, str] = {
    **{(lists, name, state): "F2" for lists in _LISTS for name in ("name",) for state in _UNREAD},
    **{(lists, "ark", "completed"): "F2" for lists in _LISTS},
    **{(lists, name, state): "F2" for lists in _LISTS for name in ("since", "message") for state in _UNREAD},
    **{(lists, "priority", "completed"): "F2" for lists in _LISTS},
    **{("page /jobs", name, state): "F2" for name in ("name", "since", "message") for state in _UNREAD},
    **{("arkline jobs over the API", name, "any"): "F2" for name in ("retry_count", "local_id")},
}
"""(surface, field, state of the row): what is shown and is not so. Strict: each is false in the walk."""

DERIVED = {
    "verbs", "cause", "usual", "advice", "percent", "archived", "next", "freshness", "text", "reported_at",
    "progress",
}  # fmt: skip
"""What no znode says: conclusions, and the moment of the answer."""


@dataclass
class Comparison:
    """The differences that were found, as facts."""

    found: dict[Fact, list[str]] = field(default_factory=dict)
    compared: int = 0

    def row(self, surface: str, kind: str, shown: Mapping[str, Any], so: Mapping[str, Any]) -> None:
        """Every field of the row is known, and is equal or absent."""
        for name, value in shown.items():
            if name in DERIVED:
                continue
            self.compared += 1
            if name not in so:
                self.note((surface, name, kind), f"{value!r}: no znode is known to say it")
            elif value is not None and not same(value, so[name]):
                self.note((surface, name, kind), f"{value!r} is shown, and the record says {so[name]!r}")

    def note(self, fact: Fact, difference: str) -> None:
        self.found.setdefault(fact, []).append(difference)


@dataclass
class Surfaces:
    """What every surface shows, compared with the record."""

    so: Record
    api: Caller
    settings: Settings
    alone: Settings
    found: Comparison
    walk: Walk

    def compare_living(self) -> None:
        self._lists()
        self._pages()
        self._commands(archived=False)
        for jid in self.so.jobs:
            self._job("GET /v1/jobs/JID", self._get(f"/v1/jobs/{jid}"), jid)
            self._timeline("GET /v1/jobs/JID/timeline", self._get(f"/v1/jobs/{jid}/timeline"), jid)
        for bid in self.so.batches:
            self._batch("GET /v1/batches/BID", self._get(f"/v1/batches/{bid}"), bid)
            self._report("GET /v1/batches/BID/report", self._get(f"/v1/batches/{bid}/report"), bid)
            self._tables(bid)
        self._callbacks()

    def compare_archived(self, bids: list[str]) -> None:
        for bid in bids:
            self._batch("archive: GET /v1/batches/BID", self._get(f"/v1/batches/{bid}"), bid)
            self._report("archive: report", self._get(f"/v1/batches/{bid}/report"), bid)
            for jid in self.so.of(bid):
                self._job("archive: GET /v1/jobs/JID", self._get(f"/v1/jobs/{jid}"), jid)
                self._timeline("archive: timeline", self._get(f"/v1/jobs/{jid}/timeline"), jid)
        kept = {bid: self.so.batches[bid] for bid in bids}
        of_kept = {jid: facts for jid, facts in self.so.jobs.items() if facts["bid"] in kept}
        self.so = Record(kept, of_kept, self.so.histories, self.so.submissions, self.so.reports)
        self._commands(archived=True)

    def _get(self, path: str) -> Any:
        answer = self.api.get(path)
        assert answer.status_code == 200, (path, answer.text)
        return answer.json()

    def _rows(self, surface: str, rows: list[dict[str, Any]], wanted: list[str]) -> None:
        assert sorted(row["jid"] for row in rows) == sorted(wanted), surface
        for row in rows:
            facts = self.so.jobs[row["jid"]]
            self.found.row(surface, facts["state"], row, facts)

    def _lists(self) -> None:
        self._rows("GET /v1/jobs", self._get("/v1/jobs?limit=200")["rows"], list(self.so.jobs))
        for bid in self.so.batches:
            rows = self._get(f"/v1/batches/{bid}/jobs?limit=200")["rows"]
            self._rows("GET /v1/batches/BID/jobs", rows, self.so.of(bid))
        rows = self._get("/v1/batches?limit=200")["rows"]
        assert sorted(row["bid"] for row in rows) == sorted(self.so.batches)
        for row in rows:
            facts = self.so.batches[row["bid"]]
            self.found.row("GET /v1/batches", facts["status"], row, facts)

    def _pages(self) -> None:
        for jid, cells in self._table("/jobs"):
            facts = self.so.jobs[jid]
            names = ("jid", "name", "state", "since", "bid", "collection", "message")
            message = f"{facts['kind'] or ''} {facts['message']}".strip()
            so = facts | {"message": message, "since": facts["since"]}
            self.found.row("page /jobs", facts["state"], dict(zip(names, cells, strict=True)), so)
        for bid, cells in self._table("/batches"):
            facts = self.so.batches[bid]
            names = ("bid", "name", "collection", "status", "since", "total", "message")
            so = facts | {"total": str(facts["total"])}
            self.found.row("page /batches", facts["status"], dict(zip(names, cells, strict=True)), so)

    def _table(self, path: str) -> Iterator[tuple[str, list[str]]]:
        answer = self.api.get(path)
        assert answer.status_code == 200, answer.text
        rows = re.findall(r'<tr data-href="[^"]*/([^/"]+)">(.*?)</tr>', answer.text, re.DOTALL)
        assert rows, path
        for name, row in rows:
            timed = re.sub(r'<time datetime="([^"]+)"[^>]*>[^<]*</time>', r"\1", row)
            cells = re.findall(r"<td[^>]*>(.*?)</td>", timed, re.DOTALL)
            plain = [html.unescape(re.sub(r"<[^>]+>", "", cell)) for cell in cells]
            yield name, [" ".join(cell.split()) for cell in plain]

    def _job(self, surface: str, shown: dict[str, Any], jid: str) -> None:
        so = self.so.jobs[jid]
        self.found.row(surface, so["state"], shown, so)

    def _batch(self, surface: str, shown: dict[str, Any], bid: str) -> None:
        so = self.so.batches[bid]
        self.found.row(surface, so["status"], shown, so)

    def _timeline(self, surface: str, shown: dict[str, Any], jid: str) -> None:
        entries = self.so.histories[jid]
        assert len(shown["steps"]) == len(entries), (surface, jid)
        for step, entry in zip(shown["steps"], entries, strict=True):
            so = {"kind": None, "message": "", "event": None, "via": None, "by": "", **entry}
            so |= {"request_id": entry.get("request_id"), "damaged": None}
            self.found.row(surface, entry["state"], {k: v for k, v in step.items() if k != "seconds"}, so)
        moments = [datetime.fromisoformat(entry["at"]) for entry in entries]
        lasted = (moments[-1] - moments[0]).total_seconds()
        so = self.so.jobs[jid] | {"seconds": pytest.approx(lasted)}
        self.found.row(surface, so["state"], {k: v for k, v in shown.items() if k != "steps"}, so)

    def _report(self, surface: str, shown: dict[str, Any], bid: str) -> None:
        batch, submission = self.so.batches[bid], self.so.submissions[bid]
        counts = Counter(self.so.jobs[jid]["state"] for jid in self.so.of(bid))
        gone = batch["buckets"].get("batch-deleted", 0)
        ended = counts["completed"] + counts["failed"]
        report = batch["report"]
        sections = {"completed", "failed", "unfinished", "deleted"}
        so = {
            "bid": bid,
            "profile_name": batch["profile"],
            "submitter": batch["submitter"],
            "payload_name": batch["name"],
            "payload_type": batch["payload_type"],
            "note": submission["note"],
            "submitted_at": batch["submitted_at"],
            "number": max(self.so.reports[bid], 1),
            "sent_at": report and report["last_modified"],
            "ended_at": batch["since"] if batch["status"] in ("completed", "failed") else None,
            "since": None,
            "status": "completed" if counts["completed"] == sum(counts.values()) > 0 else "failed",
            "message": "",
            "counts": {
                "total": sum(counts.values()) + gone,
                "completed": counts["completed"],
                "failed": counts["failed"],
                "unfinished": sum(counts.values()) - ended,
                "deleted": gone,
            },
        }
        self.found.row(surface, batch["status"], {k: v for k, v in shown.items() if k not in sections}, so)
        for line in (line for section in sections for line in shown.get(section, ())):
            if line["state"] == "deleted":
                assert self.walk.deleted.get(line["jid"]) == bid
                continue
            facts = line_facts(self.so.jobs[line["jid"]])
            self.found.row(f"{surface}, a line", facts["state"], line, facts)

    def _tables(self, bid: str) -> None:
        text = self.api.get(f"/v1/batches/{bid}/report?form=csv").content.decode("utf-8-sig")
        page = html.unescape(self.api.get(f"/v1/batches/{bid}/report?form=html").text)
        names = ("name", "local_id", "ark", "title", "state", "jid", "message")
        for cells in list(csv.reader(io.StringIO(text)))[1:]:
            shown: dict[str, Any] = dict(zip(names, cells, strict=False))
            if shown["state"] == "deleted":
                continue
            facts = line_facts(self.so.jobs[shown["jid"]])
            so = facts | {
                "local_id": "; ".join(facts["local_id"]),
                "message": facts["message"] or facts["remark"],
            }
            self.found.row("report as CSV", facts["state"], shown, so)
            for name in ("jid", "name", "title", "message"):
                if facts[name] not in page:
                    self.found.note(("report as HTML", name, facts["state"]), f"no {facts[name]!r}")

    def _callbacks(self) -> None:
        """Sent when the job was in another state perhaps: names and moments of then."""
        for jid, shown in self.walk.callbacks:
            if jid not in self.so.jobs:
                continue
            facts = self.so.jobs[jid]
            recorded = [
                entry["at"]
                for entry in self.so.histories[jid]
                if (entry["state"], entry.get("event"))
                == (("notify", "succeed") if shown["job:jobStatus"] == "COMPLETED" else ("failed", "fail"))
            ]
            if not any(same(shown["job:completionDate"], at) for at in recorded):
                self.found.note(("callback", "completionDate", shown["state"]), f"{shown} {recorded}")
            for ours, name in (("jid", "jobID"), ("bid", "batchID"), ("name", "packageName"),
                               ("title", "objectTitle"), ("who", "objectCreator")):  # fmt: skip
                if not same(shown.get(f"job:{name}"), facts[ours]):
                    self.found.note(("callback", name, shown["state"]), f"{shown} {facts[ours]!r}")

    def _commands(self, *, archived: bool) -> None:
        commands: list[tuple[str, ...]] = [] if archived else [("jobs", "--limit", "200")]
        commands += [("status", name) for name in (*self.so.jobs, *self.so.batches)]
        commands += [("timeline", jid) for jid in self.so.jobs]
        commands += [("report", bid) for bid in self.so.batches]
        here = cli.run_all(self.settings, commands, "--json")
        token = {"ARKLINE_URL": self.api.url, "ARKLINE_TOKEN": self.api.token}
        there = cli.run_all(self.alone, commands, "--json", **token)
        first = "archive: " if archived else ""
        for way, answers in (("beside the stack", here), ("over the API", there)):
            for command, done in zip(commands, answers, strict=True):
                assert done.out, (command, done.err)  # the exit code of status says how it ended
                self._command(f"{first}arkline {command[0]} {way}", command, done.json())

    def _command(self, surface: str, command: tuple[str, ...], shown: Any) -> None:
        match command:
            case ("jobs", *_):
                self._rows(surface, shown["jobs"], list(self.so.jobs))
            case ("status", name) if name.startswith("jid"):
                self._job(surface, shown, name)
            case ("status", name):
                self._batch(surface, shown, name)
            case ("timeline", jid):
                self._timeline(surface, shown, jid)
            case _:
                bid = command[1]
                self._report(surface, shown, bid)


def plain(settings: Settings) -> KazooClient:
    client = KazooClient(hosts=f"{settings.zk_hosts}{settings.zk_root}")
    client.start(timeout=20)
    return client


def compare(
    session: Session, context: WorkerContext, receiver: Receiver, seed: int, length: int, found: Comparison
) -> None:
    settings = context.settings
    walk = walked(session, context, receiver, seed, length)
    zk = plain(settings)
    try:
        so = Record.read(zk)
    finally:
        zk.stop()
        zk.close()
    alone = settings.model_copy(
        update={"zk_hosts": "127.0.0.1:1", "broker_url": "redis://127.0.0.1:1/0", "home": settings.home / "a"}
    )
    with serving_board(settings) as web:
        board = web.context.board
        read_by_board = [
            jid for jid, facts in so.jobs.items() if facts["state"] not in ("completed", "pending")
        ]

        def all_read() -> bool:
            rows = board.jobs(EVERYTHING, JobSearch(), 1000).rows
            return all(row.name for row in rows if row.jid in read_by_board)

        until(board, all_read)
        surfaces = Surfaces(so, web.caller(Role.ADMIN, name="ann"), settings, alone, found, walk)
        surfaces.compare_living()
        completed = [bid for bid, facts in so.batches.items() if facts["status"] == "completed"]
        retention.remove_old_batches(session, later(session, settings.retention + 60), context.clients())
        surfaces.compare_archived(completed)


@pytest.fixture
def context(settings: Settings, tmp_path: Path, receiver: Receiver) -> Iterator[WorkerContext]:
    settings.working.mkdir(parents=True)
    given = settings.model_copy(update={"profiles": tmp_path / "profiles"})
    collection(given, callback_url=receiver.url(), notification=["depositor@x.edu"])
    opened = make_context(given)
    opened.session()
    yield opened
    opened.drop_session()


def test_every_field_that_is_shown_is_that_of_the_record_or_absent(
    session: Session, context: WorkerContext, receiver: Receiver
) -> None:
    asked = int(os.environ.get("MODEL_EXAMPLES", "0"))
    found = Comparison()
    seed = random.randrange(10**6) if asked else 1
    compare(session, context, receiver, seed, asked or 1, found)

    seen = {fact if fact in FALSE else (*fact[:2], "any"): found.found[fact][:2] for fact in found.found}
    assert {fact: seen[fact] for fact in seen if fact not in FALSE} == {}, seed
    assert found.compared > 1000
    assert asked or set(seen) == set(FALSE), "what is true now leaves the list"
    assert mailed(context.settings)
