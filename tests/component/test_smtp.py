import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from pydantic import SecretStr

from entrypoints.stack.child import free_ports
from pipeline.notify.batch_report import compose_report
from pipeline.notify.mail import SmtpMailer
from pipeline.notify.report_mail import report_mail
from pipeline.outcome import ServiceDown, StepFailed
from pipeline.profiles.profile import Profile
from pipeline.states import FailureKind
from tests.support.records import a_batch, a_job
from tests.support.requirements import unavailable

pytestmark = [
    # aiosmtpd warns of a login without TLS, which is what these tests offer on loopback
    pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS:UserWarning"),
]


class Postbox:
    """A mail server's rules: keeps what it takes; `refuse` says with which answer it takes nothing."""

    def __init__(self) -> None:
        self.taken: list[Envelope] = []
        self.refuse: dict[str, str] = {}

    async def handle_RCPT(  # noqa: N802 - aiosmtpd calls it by SMTP's verb
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refuse:
            return self.refuse[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        if "DATA" in self.refuse:
            return self.refuse["DATA"]
        self.taken.append(envelope)
        return "250 OK"


def _knows(server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: object) -> AuthResult:
    good = isinstance(data, LoginPassword) and (data.login, data.password) == (b"ann", b"right")
    return AuthResult(success=good, handled=False)


Serve = Callable[..., tuple[Postbox, int]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a mail server: its rules and its port."""
    running: list[Controller] = []

    def start(**options: Any) -> tuple[Postbox, int]:
        postbox = Postbox()
        controller = Controller(postbox, hostname="127.0.0.1", port=free_ports(1)[0], **options)
        controller.start()
        running.append(controller)
        return postbox, controller.port

    yield start
    for controller in running:
        controller.stop()


def a_message(*recipients: str) -> EmailMessage:
    message = EmailMessage()
    message["From"] = "arkline@example.org"
    if recipients:
        message["To"] = ", ".join(recipients)
    message["Message-ID"] = "<bid1.report-1@arkline>"
    message["Subject"] = "Ingest: OK"
    message.set_content("Grüße aus dem Archiv")
    return message


def test_a_message_reaches_all_its_recipients(serve: Serve) -> None:
    postbox, port = serve()
    SmtpMailer("127.0.0.1", port).send(a_message("a@example.org", "b@example.org"))

    (envelope,) = postbox.taken
    assert envelope.rcpt_tos == ["a@example.org", "b@example.org"]
    assert b"Message-ID: <bid1.report-1@arkline>" in (envelope.original_content or b"")


def test_the_subject_of_a_report_arrives_with_the_deposits_name(serve: Serve) -> None:
    postbox, port = serve()
    batch = a_batch(deposit_name="Nachlass Müller 1911")
    profile = Profile(
        name="demo", owner="ark:/99999/j2", collections=("ark:/99999/m5",), notification=("ann@example.org",)
    )
    report = compose_report(batch, [a_job(number) for number in range(40)])
    mail = report_mail(
        report, profile, batch.submission, "arkline@example.org", "https://deposit.example.org"
    )
    SmtpMailer("127.0.0.1", port).send(mail)

    (envelope,) = postbox.taken
    arrived = message_from_bytes(envelope.original_content or b"", policy=policy.default)
    assert arrived["Subject"] == "demo: 40 objects stored (Nachlass Müller 1911)"
    text = arrived.get_body(("plain",))
    assert text is not None
    assert f"https://deposit.example.org/batches/{batch.bid}" in text.get_content()


def test_a_message_to_nobody_is_not_sent(serve: Serve) -> None:
    postbox, port = serve()
    SmtpMailer("127.0.0.1", port).send(a_message())

    assert postbox.taken == []


def test_the_login_is_used(serve: Serve) -> None:
    postbox, port = serve(authenticator=_knows, auth_required=True, auth_require_tls=False)
    SmtpMailer("127.0.0.1", port, user="ann", password=SecretStr("right")).send(a_message("a@example.org"))

    assert len(postbox.taken) == 1


def test_a_refused_login_needs_an_operator_and_shows_no_password(serve: Serve) -> None:
    _, port = serve(authenticator=_knows, auth_required=True, auth_require_tls=False)

    with pytest.raises(ServiceDown, match=f"127.0.0.1:{port} refused the login of 'ann'") as failure:
        SmtpMailer("127.0.0.1", port, user="ann", password=SecretStr("wrong")).send(
            a_message("a@example.org")
        )
    assert "wrong" not in failure.value.message


@pytest.mark.parametrize(
    ("answer", "kind"),
    [("550 no such user", FailureKind.SYSTEM), ("450 greylisted, come back", FailureKind.TRANSIENT)],
)
def test_a_refusal_of_every_recipient_is_told_with_the_servers_words(
    serve: Serve, answer: str, kind: FailureKind
) -> None:
    postbox, port = serve()
    postbox.refuse["a@example.org"] = answer

    with pytest.raises(StepFailed, match=rf"127.0.0.1:{port} .*a@example.org \({answer}\)") as failure:
        SmtpMailer("127.0.0.1", port).send(a_message("a@example.org"))
    assert failure.value.kind is kind


def test_a_refusal_of_some_recipients_is_logged_because_the_others_have_their_mail(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    postbox, port = serve()
    postbox.refuse["a@example.org"] = "550 no such user"
    SmtpMailer("127.0.0.1", port).send(a_message("a@example.org", "b@example.org"))

    assert [envelope.rcpt_tos for envelope in postbox.taken] == [["b@example.org"]]
    assert "a@example.org (550 no such user)" in caplog.text


@pytest.mark.parametrize(
    ("answer", "kind"),
    [("554 looks like spam", FailureKind.SYSTEM), ("452 no room now", FailureKind.TRANSIENT)],
)
def test_a_refused_message_is_told_with_the_servers_words(
    serve: Serve, answer: str, kind: FailureKind
) -> None:
    postbox, port = serve()
    postbox.refuse["DATA"] = answer

    with pytest.raises(StepFailed, match=f"127.0.0.1:{port} refused the message: {answer}") as failure:
        SmtpMailer("127.0.0.1", port).send(a_message("a@example.org"))
    assert failure.value.kind is kind


def test_a_server_that_is_not_there_is_a_passing_fault() -> None:
    (port,) = free_ports(1)

    with pytest.raises(StepFailed, match=f"127.0.0.1:{port} does not answer") as failure:
        SmtpMailer("127.0.0.1", port).send(a_message("a@example.org"))
    assert failure.value.kind is FailureKind.TRANSIENT


def test_a_server_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(StepFailed, match=f"127.0.0.1:{port} does not answer: .*timed out") as failure:
            SmtpMailer("127.0.0.1", port, timeout=0.2).send(a_message("a@example.org"))
    assert failure.value.kind is FailureKind.TRANSIENT


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    openssl = shutil.which("openssl")
    if openssl is None:
        unavailable("openssl is needed to make a certificate: apt-get install openssl")
    file = tmp_path_factory.mktemp("certificate") / "both.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", file, "-out", file.with_suffix(".crt")],
        check=True, capture_output=True,
    )  # fmt: skip
    file.write_bytes(file.read_bytes() + file.with_suffix(".crt").read_bytes())
    return file


def _server_side(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def test_mail_is_encrypted_when_that_is_asked_for(serve: Serve, certificate: Path) -> None:
    postbox, port = serve(tls_context=_server_side(certificate), require_starttls=True)
    trust = ssl.create_default_context(cafile=certificate.with_suffix(".crt"))
    SmtpMailer("127.0.0.1", port, starttls=True, trust=trust).send(a_message("a@example.org"))

    assert len(postbox.taken) == 1


def test_a_certificate_that_nobody_vouches_for_needs_an_operator(serve: Serve, certificate: Path) -> None:
    postbox, port = serve(tls_context=_server_side(certificate), require_starttls=True)

    with pytest.raises(ServiceDown, match="certificate that is not trusted"):
        SmtpMailer("127.0.0.1", port, starttls=True).send(a_message("a@example.org"))
    assert postbox.taken == []


def test_a_server_without_encryption_gets_nothing_when_encryption_is_asked_for(serve: Serve) -> None:
    postbox, port = serve()

    with pytest.raises(ServiceDown, match="does not support what the settings require: STARTTLS"):
        SmtpMailer("127.0.0.1", port, starttls=True).send(a_message("a@example.org"))
    assert postbox.taken == []


def test_mail_and_login_are_encrypted_from_the_first_byte_when_that_is_asked_for(
    serve: Serve, certificate: Path
) -> None:
    postbox, port = serve(
        ssl_context=_server_side(certificate),
        authenticator=_knows,
        auth_required=True,
        auth_require_tls=False,
    )
    trust = ssl.create_default_context(cafile=certificate.with_suffix(".crt"))
    mailer = SmtpMailer(
        "127.0.0.1", port, user="ann", password=SecretStr("right"), tls=True, starttls=True, trust=trust
    )

    mailer.send(a_message("a@example.org"))

    (envelope,) = postbox.taken
    assert envelope.rcpt_tos == ["a@example.org"]


def test_a_certificate_that_nobody_vouches_for_gets_no_login(serve: Serve, certificate: Path) -> None:
    postbox, port = serve(ssl_context=_server_side(certificate))

    with pytest.raises(ServiceDown, match="certificate that is not trusted"):
        SmtpMailer("127.0.0.1", port, user="ann", tls=True).send(a_message("a@example.org"))
    assert postbox.taken == []


def test_a_server_that_speaks_plainly_gets_nothing_when_encryption_is_asked_for(serve: Serve) -> None:
    postbox, port = serve()

    with pytest.raises(StepFailed, match="does not answer") as failure:
        SmtpMailer("127.0.0.1", port, tls=True, timeout=5).send(a_message("a@example.org"))
    assert failure.value.kind is FailureKind.TRANSIENT
    assert postbox.taken == []
