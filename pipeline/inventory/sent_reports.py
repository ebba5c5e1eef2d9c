"""The reports of a batch as they were sent, with their numbers and wording; kept when the record is gone.

Rule: a report is kept before it is sent. A repeated attempt sends what was kept, even if jobs have changed
since, because the first attempt may have sent it.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import select

from pipeline.inventory.sql import SqlInventory
from pipeline.inventory.statements import insert
from pipeline.inventory.tables import reports_sent
from pipeline.records import Record


class SentReport(Record):
    number: int
    at: datetime
    report: Mapping[str, Any] | Record
    """In the form of `pipeline.notify.report.text.as_json`; of an update, only the changes."""
    text: str
    """The text of the mail."""


def keep_report(inventory: SqlInventory, bid: str, sent: SentReport) -> None:
    row = {"bid": bid, **dict(sent)}  # a dump would unpack the lines of all jobs

    def write(connection: Any) -> None:
        statement = insert(connection, reports_sent)
        changes = {name: statement.excluded[name] for name in ("at", "report", "text")}
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=[reports_sent.c.bid, reports_sent.c.number], set_=changes
            ),
            row,
        )

    inventory.database.write(write)


def kept_report(inventory: SqlInventory, bid: str, number: int, at: datetime) -> SentReport | None:
    """The report with this number that was kept when its writing began `at` this time, if there is one."""
    query = select(reports_sent).where(reports_sent.c.bid == bid, reports_sent.c.number == number)
    row = inventory.database.read(lambda connection: connection.execute(query).mappings().one_or_none())
    return SentReport.model_validate(dict(row)) if row is not None and row["at"] == at else None


def sent_reports(inventory: SqlInventory, bid: str) -> tuple[SentReport, ...]:
    """In the order in which they were sent; none if releases before 0.2.1 sent them."""
    query = select(reports_sent).where(reports_sent.c.bid == bid).order_by(reports_sent.c.number)
    rows = inventory.database.read(lambda connection: connection.execute(query).mappings().all())
    return tuple(SentReport.model_validate(dict(row)) for row in rows)
