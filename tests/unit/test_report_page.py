"""The second form of the mails, for programs that show HTML."""

from email import message_from_bytes, policy
from email.message import EmailMessage
from html.parser import HTMLParser

from pipeline.notify.report import as_html, compose_report, confirmation_mail, report_mail
from pipeline.notify.report.text import LISTED
from pipeline.profiles.profile import Profile
from pipeline.states import FailureKind, JobState
from tests.support.records import a_batch, a_job

PROFILE = Profile(
    name="demo",
    owner="ark:/99999/j2000000",
    collections=("ark:/99999/m5000000",),
    notification=("ann@example.org",),
)
SENDER = "arkline@example.org"


class _Page(HTMLParser):
    """The text of a page, and the tags and attributes in it."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> tuple[str, _Page]:
    parser = _Page()
    parser.feed(page)
    parser.close()
    return " ".join(" ".join(parser.text).split()), parser


def html_of(letter: EmailMessage) -> str:
    part = letter.get_body(("html",))
    assert part is not None
    return str(part.get_content())


def test_a_page_tells_what_the_text_tells() -> None:
    jobs = [
        a_job(1),
        a_job(2, JobState.FAILED, message="a.jpg: 404", kind=FailureKind.CONTENT, local_id=("loc-2",)),
    ]

    told, _ = read(as_html(compose_report(a_batch(), jobs)))

    for fact in ("1 of 2 completed, 1 failed", "Failed: 1", "jid0000000002", "a.jpg: 404", "loc-2"):
        assert fact in told
    assert "Correct what the message names" in told
    assert "ark:/99999/fk41" in told


def test_what_was_submitted_cannot_act_on_a_page() -> None:
    evil = "<script>alert(1)</script><img src=x onerror=y>\x1b[2J"
    report = compose_report(a_batch(note=evil), [a_job(1, JobState.FAILED, message=evil)])

    told, page = read(as_html(report))

    assert not page.tags & {"script", "img", "a", "link", "iframe", "form"}
    assert page.attributes <= {"style", "lang", "charset"}
    assert told.count("<script>alert(1)</script>") == 2
    assert "\x1b" not in told


def test_a_long_list_is_cut() -> None:
    told, _ = read(as_html(compose_report(a_batch(), [a_job(n) for n in range(1, LISTED + 3)])))

    assert "and 2 more" in told


def test_a_mail_has_both_forms_and_its_attachments() -> None:
    report = compose_report(a_batch(), [a_job(1), a_job(2, JobState.FAILED)])
    letter = report_mail(report, PROFILE, a_batch().submission, SENDER)

    read_back = message_from_bytes(letter.as_bytes(), policy=policy.default)

    assert [part.get_content_type() for part in read_back.walk()] == [
        "multipart/mixed",
        "multipart/alternative",
        "text/plain",
        "text/html",
        "application/json",
        "application/json",
    ]
    told, _ = read(html_of(read_back))
    assert "attached." in told


def test_a_mail_that_is_made_again_is_the_same_byte_for_byte() -> None:
    batch = a_batch()

    def made(*jobs: JobState) -> bytes:
        each = [a_job(number, state) for number, state in enumerate(jobs, 1)]
        report = compose_report(batch, each, at=batch.status.last_modified)
        return report_mail(report, PROFILE, batch.submission, SENDER).as_bytes()

    def confirmed() -> bytes:
        return confirmation_mail(batch.bid, batch.submission, PROFILE, 1, SENDER).as_bytes()

    assert made(JobState.COMPLETED, JobState.FAILED) == made(JobState.COMPLETED, JobState.FAILED)
    assert confirmed() == confirmed()


def test_a_confirmation_has_both_forms() -> None:
    batch = a_batch(note="a <b>")

    told, _ = read(html_of(confirmation_mail(batch.bid, batch.submission, PROFILE, 3, SENDER)))

    assert "3 objects will be made of it" in told
    assert "a <b>" in told
