from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path

import pytest

from pipeline.notify.mail import OutboxMailer, SmtpMailer, open_mailer
from pipeline.outcome import Service, ServiceDown
from pipeline.settings import Settings


def a_message(identifier: str | None = "<bid1.report-1@arkline>", text: str = "All is well.") -> EmailMessage:
    message = EmailMessage()
    message["From"] = "arkline@example.org"
    message["To"] = "depositor@example.org"
    message["Subject"] = "Ingest: OK"
    if identifier is not None:
        message["Message-ID"] = identifier
    message.set_content(text)
    return message


def test_a_message_becomes_a_file_named_after_its_identifier(tmp_path: Path) -> None:
    OutboxMailer(tmp_path / "outbox").send(a_message(text="Grüße aus dem Archiv"))

    (file,) = (tmp_path / "outbox").iterdir()
    assert file.name == "bid1.report-1@arkline.eml"
    read = message_from_bytes(file.read_bytes(), policy=policy.default)
    assert read["To"] == "depositor@example.org"
    assert read.get_content() == "Grüße aus dem Archiv\n"


def test_the_same_message_twice_is_one_file(tmp_path: Path) -> None:
    outbox = OutboxMailer(tmp_path)
    outbox.send(a_message())
    outbox.send(a_message())

    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "identifier", ["<../../etc/passwd>", "<.hidden>", "<a/b>", "", None, "<" + "x" * 999 + ">"]
)
def test_no_identifier_leads_out_of_the_outbox(tmp_path: Path, identifier: str | None) -> None:
    OutboxMailer(tmp_path / "outbox").send(a_message(identifier))

    (file,) = tmp_path.rglob("*.eml")
    assert file.parent == tmp_path / "outbox"
    assert not file.name.startswith(".")


def test_identifiers_that_differ_in_unsafe_characters_only_are_two_files(tmp_path: Path) -> None:
    outbox = OutboxMailer(tmp_path)
    outbox.send(a_message("<a/b@x>"))
    outbox.send(a_message("<a:b@x>"))

    assert len(list(tmp_path.iterdir())) == 2


def test_an_outbox_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "outbox").write_text("a file is in the way")

    with pytest.raises(ServiceDown, match=str(tmp_path / "outbox")) as failure:
        OutboxMailer(tmp_path / "outbox").send(a_message())
    assert failure.value.service is Service.MAIL


def test_a_message_that_cannot_be_written_leaves_no_draft(tmp_path: Path) -> None:
    (tmp_path / "bid1.report-1@arkline.eml").mkdir()

    with pytest.raises(ServiceDown):
        OutboxMailer(tmp_path).send(a_message())
    assert [path.name for path in tmp_path.iterdir()] == ["bid1.report-1@arkline.eml"]


def test_without_a_mail_server_mail_goes_to_the_outbox(tmp_path: Path) -> None:
    mailer = open_mailer(Settings(home=tmp_path))

    assert isinstance(mailer, OutboxMailer)
    assert mailer.folder == tmp_path / "outbox"


def test_with_a_mail_server_mail_is_sent_and_no_password_is_shown() -> None:
    mailer = open_mailer(Settings(smtp_host="mail.example.org", smtp_user="ann", smtp_password="secret"))

    assert isinstance(mailer, SmtpMailer)
    assert mailer.password.get_secret_value() == "secret"
    assert "secret" not in repr(mailer)


def test_the_mail_server_is_reached_as_the_settings_say(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, smtp_host="mail.example.org", smtp_port=465, smtp_tls=True)

    assert open_mailer(settings) == SmtpMailer("mail.example.org", 465, tls=True)
