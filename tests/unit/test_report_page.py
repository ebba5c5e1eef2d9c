"""The second form of the mails, for programs that show HTML."""

from email import message_from_bytes, policy
from email.message import EmailMessage
from html.parser import HTMLParser

from pipeline.notify.batch_report import compose_report
from pipeline.notify.report_mail import LISTED, as_html, confirmation_mail, report_mail
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
        self.chunks: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.chunks.append(data)


def read(page: str) -> tuple[str, _Page]:
    parser = _Page()
    parser.feed(page)
    parser.close()
    return " ".join(" ".join(parser.chunks).split()), parser


def html_of(mail: EmailMessage) -> str:
    part = mail.get_body(("html",))
    assert part is not None
    return str(part.get_content())


def test_the_page_has_the_facts_of_the_text() -> None:
    jobs = [
        a_job(1),
        a_job(2, JobState.FAILED, message="a.jpg: 404", kind=FailureKind.CONTENT, local_id=("loc-2",)),
    ]

    text, _ = read(as_html(compose_report(a_batch(), jobs)))

    for fact in ("1 of 2 objects completed, 1 failed", "Failed: 1", "jid0000000002", "a.jpg: 404", "loc-2"):
        assert fact in text
    assert "Correct the problem described in the message" in text
    assert "ark:/99999/fk41" in text


def test_submitted_values_cannot_inject_markup() -> None:
    evil = "<script>alert(1)</script><img src=x onerror=y>\x1b[2J"
    report = compose_report(a_batch(note=evil), [a_job(1, JobState.FAILED, message=evil)])

    text, page = read(as_html(report))

    assert not page.tags & {"script", "img", "a", "link", "iframe", "form"}
    assert page.attributes <= {"style", "lang", "charset"}
    assert text.count("<script>alert(1)</script>") == 2
    assert "\x1b" not in text


def test_a_long_list_is_cut() -> None:
    text, _ = read(as_html(compose_report(a_batch(), [a_job(n) for n in range(1, LISTED + 3)])))

    assert "and 2 more" in text


def test_a_mail_has_both_forms_and_its_attachments() -> None:
    report = compose_report(a_batch(), [a_job(1), a_job(2, JobState.FAILED)])
    mail = report_mail(report, PROFILE, a_batch().submission, SENDER)

    read_back = message_from_bytes(mail.as_bytes(), policy=policy.default)

    assert [part.get_content_type() for part in read_back.walk()] == [
        "multipart/mixed",
        "multipart/alternative",
        "text/plain",
        "text/html",
        "application/json",
        "application/json",
    ]
    text, _ = read(html_of(read_back))
    assert "attached for use by programs" in text


def test_composing_a_mail_again_gives_the_same_bytes() -> None:
    batch = a_batch()

    def made(*states: JobState) -> bytes:
        jobs = [a_job(number, state) for number, state in enumerate(states, 1)]
        report = compose_report(batch, jobs, at=batch.status.last_modified)
        return report_mail(report, PROFILE, batch.submission, SENDER).as_bytes()

    def confirmed() -> bytes:
        return confirmation_mail(batch.bid, batch.submission, PROFILE, 1, SENDER).as_bytes()

    assert made(JobState.COMPLETED, JobState.FAILED) == made(JobState.COMPLETED, JobState.FAILED)
    assert confirmed() == confirmed()


def test_a_confirmation_has_both_forms() -> None:
    batch = a_batch(note="a <b>")

    text, _ = read(html_of(confirmation_mail(batch.bid, batch.submission, PROFILE, 3, SENDER)))

    assert "3 objects will be created." in text
    assert "a <b>" in text
