"""Every surface compared with the record, field by field."""

import csv
import html
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from pipeline.notify.report_mail import report_text
from pipeline.settings import Settings
from pipeline.working_storage.capacity import in_units
from tests.support import cli, command_facts, documents
from tests.support.outbox import letters
from tests.support.random_histories import Walk
from tests.support.record_facts import Record, canonical, line_facts, same
from tests.support.web import Caller

Fact = tuple[str, str, str]

DERIVED = {
    "verbs", "cause", "usual", "advice", "percent", "archived", "next", "freshness", "text", "reported_at",
    "progress", "section", "history", "seconds_left",
}  # fmt: skip
"""What no znode says: conclusions, and the moment of the answer."""


@dataclass
class Comparison:
    """The differences that were found, as facts, and the fields that were shown."""

    found: dict[Fact, list[str]] = field(default_factory=dict)
    shown: dict[str, set[str]] = field(default_factory=dict)
    """Surface -> fields that had a value in one row at least."""
    compared: int = 0

    def row(self, surface: str, kind: str, given: Mapping[str, Any], so: Mapping[str, Any]) -> None:
        """Every field of the row is known, and is equal or absent."""
        for name, value in given.items():
            if name in DERIVED:
                continue
            self.compared += 1
            if canonical(value) not in (None, 0):
                self.shown.setdefault(surface, set()).add(name)
            if name not in so:
                self.note((surface, name, kind), f"{value!r}: no znode is known to say it")
            elif value is not None and not same(value, so[name]):
                self.note((surface, name, kind), f"{value!r} is shown, and the record says {so[name]!r}")

    def shown_fields(self) -> list[str]:
        return sorted(f"{surface}: {' '.join(sorted(names))}" for surface, names in self.shown.items())

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
        self._commands("")
        for jid in self.so.jobs:
            self._job("GET /v1/jobs/JID", self._get(f"/v1/jobs/{jid}"), jid)
            self._timeline("GET /v1/jobs/JID/timeline", self._get(f"/v1/jobs/{jid}/timeline"), jid)
            self._job_page("page /jobs/JID", jid)
        for bid in self.so.batches:
            self._batch_page("page /batches/BID", bid)
            self._batch("GET /v1/batches/BID", self._get(f"/v1/batches/{bid}"), bid)
            self._report("GET /v1/batches/BID/report", self._get(f"/v1/batches/{bid}/report"), bid)
            self._tables(bid)
        self._callbacks()

    def compare_archived(self, first: str) -> None:
        """The views of batches that have left ZooKeeper, and of their jobs."""
        for bid in self.so.batches:
            self._batch(f"{first}GET /v1/batches/BID", self._get(f"/v1/batches/{bid}"), bid)
            self._report(f"{first}report", self._get(f"/v1/batches/{bid}/report"), bid)
            self._batch_page(f"{first}page /batches/BID", bid)
            self._tables(bid, first)
        for jid in (*self.so.jobs, *self.so.deleted):
            self._job(f"{first}GET /v1/jobs/JID", self._get(f"/v1/jobs/{jid}"), jid)
            self._timeline(f"{first}timeline", self._get(f"/v1/jobs/{jid}/timeline"), jid)
            self._job_page(f"{first}page /jobs/JID", jid)
        self._commands(first)

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
            names = ("jid", "name", "state", "since", "bid", "deposit_name", "collection", "message")
            message = f"{facts['kind'] or ''} {facts['message']}".strip()
            so = facts | {"message": message, "since": facts["since"]}
            self.found.row("page /jobs", facts["state"], dict(zip(names, cells, strict=True)), so)
        for bid, cells in self._table("/batches"):
            facts = self.so.batches[bid]
            columns = ("bid", "name", "collection", "status", "since", "total", "message")
            so = facts | {"total": str(facts["total"])}
            self.found.row("page /batches", facts["status"], dict(zip(columns, cells, strict=True)), so)

    def _table(self, path: str) -> Iterator[tuple[str, list[str]]]:
        answer = self.api.get(path)
        assert answer.status_code == 200, answer.text
        rows = re.findall(r'<tr data-href="[^"]*/([^/"]+)">(.*?)</tr>', answer.text, re.DOTALL)
        assert rows, path
        for name, row in rows:
            facts = re.sub(r'<td><input type="checkbox"[^>]*></td>', "", row)
            timed = re.sub(r'<time datetime="([^"]+)"[^>]*>[^<]*</time>', r"\1", facts)
            cells = re.findall(r"<td[^>]*>(.*?)</td>", timed, re.DOTALL)
            plain = [html.unescape(re.sub(r"<[^>]+>", "", cell)) for cell in cells]
            yield name, [" ".join(cell.split()) for cell in plain]

    def _job(self, surface: str, shown: dict[str, Any], jid: str) -> None:
        so = self.so.job(jid)
        self.found.row(surface, so["state"], shown, so)

    def _batch(self, surface: str, shown: dict[str, Any], bid: str) -> None:
        so = self.so.batches[bid]
        self.found.row(surface, so["status"], shown, so)

    def _timeline(self, surface: str, shown: dict[str, Any], jid: str) -> None:
        entries = self.so.histories[jid]
        assert len(shown["steps"]) == len(entries), (surface, jid)
        for step, entry in zip(shown["steps"], entries, strict=True):
            so = {"kind": None, "message": "", "event": None, "via": None, "by": "", **entry}
            so |= {"request_id": entry.get("request_id"), "damaged": None, "overruled": None}
            self.found.row(surface, entry["state"], {k: v for k, v in step.items() if k != "seconds"}, so)
        moments = [datetime.fromisoformat(entry["at"]) for entry in entries]
        lasted = (moments[-1] - moments[0]).total_seconds()
        so = self.so.job(jid) | {"seconds": pytest.approx(lasted)}
        self.found.row(surface, so["state"], {k: v for k, v in shown.items() if k != "steps"}, so)

    def _report_facts(self, bid: str) -> dict[str, Any]:
        batch, submission = self.so.batches[bid], self.so.submissions[bid]
        counts = Counter(self.so.jobs[jid]["state"] for jid in self.so.of(bid))
        gone = batch["buckets"].get("batch-deleted", 0)
        ended = counts["completed"] + counts["failed"]
        return {
            "bid": bid,
            "profile_name": batch["profile"],
            "submitter": batch["submitter"],
            "deposit_name": batch["deposit_name"],
            "payload_name": batch["payload_name"],
            "payload_type": batch["payload_type"],
            "note": submission["note"],
            "submitted_at": batch["submitted_at"],
            "number": max(self.so.reports[bid], 1),
            "sent_at": batch["sent_at"],
            "ended_at": batch["ended_at"],
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

    def _report(self, surface: str, shown: dict[str, Any], bid: str) -> None:
        sections = ("completed", "failed", "unfinished", "deleted")
        so = self._report_facts(bid)
        given = {name: value for name, value in shown.items() if name not in sections}
        self.found.row(surface, self.so.batches[bid]["status"], given, so)
        for line in (line for section in sections for line in shown.get(section, ())):
            facts = line_facts(self.so.job(line["jid"]))
            assert facts["bid"] == bid
            self.found.row(f"{surface}, a line", facts["state"], line, facts)

    def _tables(self, bid: str, first: str = "") -> None:
        report = f"/v1/batches/{bid}/report"
        self._csv(f"{first}report as CSV", self.api.get(f"{report}?form=csv").content.decode("utf-8-sig"))
        page_csv = self.api.get(f"/batches/{bid}/report.csv").content.decode("utf-8-sig")
        self._csv(f"{first}page report.csv", page_csv)
        for surface, path in (
            ("report as HTML", f"{report}?form=html"),
            ("page report", f"/batches/{bid}/report"),
        ):
            self._document(first + surface, documents.report_page(self.api.get(path).text), bid)

    def _csv(self, surface: str, text: str) -> None:
        names = ("name", "local_id", "ark", "title", "state", "jid", "message", "advice", "checks")
        for cells in list(csv.reader(io.StringIO(text)))[1:]:
            row: dict[str, Any] = dict(zip(names, cells, strict=True))
            so = self._line(row["jid"])
            self.found.row(surface, so["state"], row, so | {"message": so["message"] or so["remark"]})

    def _line(self, jid: str) -> dict[str, Any]:
        """A line of a report for people, in which local ids are one text."""
        facts = line_facts(self.so.job(jid))
        return facts | {"local_id": "; ".join(facts["local_id"])}

    def _payload(self, bid: str) -> str:
        batch = self.so.batches[bid]
        return f"{batch['name']} ({batch['payload_type'].replace('_', '-')})"

    def _document(
        self,
        surface: str,
        read: tuple[dict[str, Any], list[dict[str, str]]],
        bid: str,
        wanted: list[str] | None = None,
        **more: Any,
    ) -> None:
        """A report for people: its facts to the minute, and each object in the section of its state.

        `wanted`: the jobs of which it has a line; all of the batch if it is None.
        """
        facts, lines = read
        batch, so = self.so.batches[bid], self._report_facts(bid) | more
        submitter = f" by {batch['submitter']}" if batch["submitter"] else ""
        so |= {
            "collection": batch["collection"],
            "submitted": f"{minute(batch['submitted_at'])}{submitter}",
            "payload": self._payload(bid),
            "sent_at": so["sent_at"] and minute(so["sent_at"]),
        }
        self.found.row(surface, batch["status"], facts, so)
        present = self.so.members(bid) if wanted is None else wanted
        assert sorted(line["jid"] for line in lines) == sorted(present), (surface, bid)
        sections = {"completed": "Completed", "failed": "Failed", "deleted": "Deleted by our staff"}
        for line in lines:
            so = self._line(line["jid"])
            assert line["section"] == sections.get(so["state"], "In progress"), (surface, line)
            self.found.row(f"{surface}, a line", so["state"], line, so)

    def _job_page(self, surface: str, jid: str) -> None:
        so = self.so.job(jid)
        space = so["space_needed"] if so["space_needed"] is None else in_units(so["space_needed"])
        page = documents.Page.read(self._page(f"/jobs/{jid}"))
        texts = {"local_id": "; ".join(so["local_id"]), "space_needed": space if so["space_needed"] else None}
        self.found.row(surface, so["state"], documents.job_page(page), so | texts)
        entries = self.so.histories[jid]
        rows = list(page.rows(0))
        assert len(rows) == len(entries), (surface, jid)
        for number, (row, entry) in enumerate(zip(rows, entries, strict=True)):
            kind, message, via = entry.get("kind"), entry.get("message", ""), entry.get("via")
            facts = {
                "at": entry["at"],
                "state": entry["state"],
                "named": entry.get("event") or ("created" if number == 0 else "try" if kind else "note"),
                "by": " ".join(filter(None, (entry.get("by"), f"({via})" if via else ""))),
                "message": " ".join(filter(None, (kind, message))),
            }
            del row["seconds"]
            self.found.row(f"{surface}, the timeline", entry["state"], row, facts)

    def _batch_page(self, surface: str, bid: str) -> None:
        so = self.so.batches[bid]
        page = documents.Page.read(self._page(f"/batches/{bid}"))
        by_state = {"stored": so["jobs"].get("completed", 0), "lost": so["jobs"].get("failed", 0)}
        texts = {"payload_type": so["payload_type"].replace("_", "-"), **by_state}
        self.found.row(surface, so["status"], documents.batch_page(page), so | texts)
        for row, jid in zip(page.rows(0) if page.tables else (), self.so.members(bid), strict=True):
            self.found.row(f"{surface}, an object", self.so.job(jid)["state"], row, self._object(jid))
        for row in (row for number in range(1, len(page.tables)) for row in page.rows(number)):
            job = self.so.job(row["jid"])
            self.found.row(f"{surface}, a job", job["state"], row, job)

    def _object(self, jid: str) -> dict[str, Any]:
        """What the table of the objects has of a job, as `deposited_objects` words it."""
        job = line_facts(self.so.job(jid))
        message, state, waits = job["message"], job["state"], self.so.job(jid)["message"]
        results = {
            "completed": "stored",
            "failed": f"not stored: {message or 'no message was recorded'}",
            "deleted": f"taken out by our staff: {message}",
            "pending": "waiting: its turn has not come",
            "held": "waiting: our staff hold it back",
            "review": "waiting: our staff look at it before it is stored",
        }
        said = f"waiting: {waits}" if job["waiting"] and waits else f"in work: {state}"
        remark = f" Please check: {job['remark']}" if job["remark"] else ""
        return {
            "title": job["title"] or job["name"],
            "ark": job["ark"],
            "local_id": "; ".join(job["local_id"]),
            "files": "",
            "result": results.get(state, said) + remark,
        }

    def _page(self, path: str) -> str:
        answer = self.api.get(path)
        assert answer.status_code == 200, (path, answer.text)
        return answer.text

    def compare_mails(self) -> None:
        """Every mail but one was sent after the last move: all that it says is so still."""
        mails = letters(self.settings)
        assert mails
        for mail in mails:
            name, _, kind = mail["Message-ID"].strip("<>").removesuffix("@arkline").partition(".")
            if not kind:
                self._notice(mail)
            elif kind == "confirmation":
                self._confirmation(mail, name)
            else:
                first = kind == "report-1" and name == self.walk.updated
                so = self.walk.first_report if first and self.walk.first_report else self.so
                replace(self, so=so)._report_mail(mail, name, int(kind.removeprefix("report-")))

    def _heads(self, surface: str, mail: EmailMessage, status: str, **told: Any) -> None:
        """The lines above a mail; its date has no fractions."""
        date = datetime.fromisoformat(told.pop("date")).replace(microsecond=0)
        given = {
            "subject": mail["Subject"],
            "to": mail["To"],
            "date": parsedate_to_datetime(mail["Date"]),
            "answers": mail["In-Reply-To"],
        }
        self.found.row(
            surface, status, given, {"to": "depositor@x.edu", "answers": None, "date": date} | told
        )

    def _report_mail(self, mail: EmailMessage, bid: str, number: int) -> None:
        so, status, wanted = self._report_facts(bid), self.so.batches[bid]["status"], self.so.members(bid)
        updated, before = number > 1, None
        if updated and (first := self.walk.first_report):
            before = first.batches[bid]["sent_at"]
            wanted = [jid for jid in wanted if self.so.job(jid)["state"] != first.job(jid)["state"]]
        state = "update-reporting" if updated else "reporting"
        began = next(entry["at"] for entry in reversed(self.so.histories[bid]) if entry["state"] == state)
        number_of = so["counts"]
        of, stored, lost = (number_of[name] for name in ("total", "completed", "failed"))
        objects = "1 object" if of == 1 else f"{of} objects"
        outcome = f"{lost} of {objects} not stored" if lost else f"{stored} of {objects} stored"
        if stored == of:
            outcome = f"{objects} stored"
        name = self.so.batches[bid]["name"]
        subject = f"demo: {'update: ' if updated else ''}{outcome} ({name})"
        answers = f"<{bid}.report-1@arkline>" if updated else None
        surface = "update mail" if updated else "mail"
        self._heads(surface, mail, status, subject=subject, date=began, answers=answers)
        self.found.row(surface, status, {"number": number}, so)
        since = before and minute(before)
        more = {"sent_at": before, "since": since, "reported_at": minute(began)}
        for form, read in (
            ("text", documents.report_text(report_text(mail))),
            ("HTML", documents.report_page(page_of(mail))),
        ):
            self._document(f"{surface} as {form}", read, bid, wanted, **more)
        for line in documents.attached_lines(mail):
            assert line["jid"] in wanted, (surface, line)
            facts = line_facts(self.so.job(line["jid"]))
            self.found.row(f"{surface}, attached", facts["state"], line, facts)

    def _confirmation(self, mail: EmailMessage, bid: str) -> None:
        so = self._report_facts(bid)
        so |= {
            "collection": so["profile_name"],
            "payload": self._payload(bid),
            "total": str(so["counts"]["total"]),
        }
        of = so["counts"]["total"]
        objects = "1 object" if of == 1 else f"{of} objects"
        subject = f"demo: received, {objects} ({self.so.batches[bid]['name']})"
        self._heads("confirmation", mail, so["status"], subject=subject, date=so["submitted_at"])
        paragraphs = documents.Page.read(page_of(mail)).text["p"]
        for form, text in (("text", report_text(mail)), ("HTML", " ".join(paragraphs))):
            self.found.row(f"confirmation as {form}", so["status"], documents.confirmation(text), so)

    def _notice(self, mail: EmailMessage) -> None:
        given = documents.notice(str(mail.get_content()))
        so = self.so.outages[given["service"]]
        over = so.get("ended") if "until" in given else None
        subject = f"arkline: {given['service']} {'works again' if over else 'is unavailable'}"
        facts = {"service": given["service"], "since": second(so["since"]), "message": so["message"]}
        facts |= {"hosts": ", ".join(so["hosts"]), "until": over and second(over)}
        date = over or so["since"]
        self._heads("notice", mail, so["service"], subject=subject, date=date, to="ops@x.edu")
        self.found.row("notice", so["service"], given, facts)

    def _callbacks(self) -> None:
        """Sent when the job was in another state perhaps: names and moments of then."""
        for jid, shown in self.walk.callbacks:
            if jid not in self.so.jobs:
                continue
            facts = self.so.jobs[jid]
            completed = shown["job:jobStatus"] == "COMPLETED"
            moves = {("notify", "succeed")} if completed else {("failed", "fail"), ("failed", "reject")}
            history = self.so.histories[jid]
            recorded = [entry["at"] for entry in history if (entry["state"], entry.get("event")) in moves]
            at = shown["job:completionDate"]
            ended = next((moment for moment in recorded if same(moment, at)), recorded)
            names = {"jid": "jobID", "bid": "batchID", "name": "packageName", "title": "objectTitle",
                     "who": "objectCreator"}  # fmt: skip
            given = {"at": at} | {ours: shown.get(f"job:{theirs}") for ours, theirs in names.items()}
            self.found.row("callback", shown["state"], given, facts | {"at": ended})

    def _commands(self, first: str) -> None:
        commands: list[tuple[str, ...]] = [] if first else [("jobs", "--limit", "200")]
        present = (*self.so.jobs, *self.so.deleted)
        commands += [("status", name) for name in (*present, *self.so.batches)]
        commands += [("timeline", jid) for jid in present]
        commands += [("report", bid) for bid in self.so.batches]
        here = cli.run_all(self.settings, commands, "--json")
        token = {"ARKLINE_URL": self.api.url, "ARKLINE_TOKEN": self.api.token}
        there = cli.run_all(self.alone, commands, "--json", **token)
        for way, answers in (("beside the stack", here), ("over the API", there)):
            for command, done in zip(commands, answers, strict=True):
                assert done.out, (command, done.err)  # the exit code of status says how it ended
                self._command(f"{first}arkline {command[0]} {way}", command, done.json())
        reports = [("report", bid) for bid in self.so.batches]
        texts = {
            "over the API": cli.run_all(self.alone, reports, **token),
            "beside the stack": cli.run_all(self.settings, reports),
        }
        for way, answers in texts.items():
            for (_, bid), done in zip(reports, answers, strict=True):
                assert done.code == 0, (way, bid, done.err)
                self._document(f"{first}arkline report, as text, {way}", documents.report_text(done.out), bid)

        self._texts(first, token)

    def _texts(self, first: str, token: dict[str, str]) -> None:
        """What `why` and `status` print for people."""
        names = (*self.so.jobs, *self.so.deleted, *self.so.batches)
        commands: list[tuple[str, ...]] = [(verb, name) for verb in ("why", "status") for name in names]
        commands += [] if first else [("status",)]
        for way, settings, more in (
            ("beside the stack", self.settings, {}),
            ("over the API", self.alone, token),
        ):
            began = datetime.now(UTC)
            answers = cli.run_all(settings, commands, **more, COLUMNS="400")
            asked = command_facts.Asked(self.so, began, datetime.now(UTC))
            for command, done in zip(commands, answers, strict=True):
                surface = f"{first}arkline {command[0]}, as text, {way}"
                for kind, given, so in asked.facts(command, done.out):
                    self.found.row(f"{surface}, {kind}", so.get("state", "fleet"), given, so)

    def _command(self, surface: str, command: tuple[str, ...], shown: Any) -> None:
        match command:
            case ("jobs", *_):
                self._rows(surface, shown["jobs"], list(self.so.jobs))
            case ("status", name) if name.startswith("jid"):
                self._job(f"{surface}, a job", shown, name)
            case ("status", name):
                self._batch(f"{surface}, a batch", shown, name)
            case ("timeline", jid):
                self._timeline(surface, shown, jid)
            case _:
                bid = command[1]
                self._report(surface, shown, bid)


def minute(moment: str) -> str:
    return f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def second(moment: str) -> str:
    return f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def page_of(mail: EmailMessage) -> str:
    page = mail.get_body(("html",))
    assert page is not None
    return str(page.get_content())
