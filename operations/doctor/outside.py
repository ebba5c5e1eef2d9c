"""Mail, identifiers and profiles: what depositors notice first if it is wrong."""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING

from operations.doctor import certificates
from operations.doctor.line import Line, line, unknown
from pipeline import plugins
from pipeline.errors import ArklineError
from pipeline.identifiers.ezid import EzidMinter
from pipeline.notify.mail import SmtpMailer, open_mailer
from pipeline.profiles.profile import Profile, Profiles

if TYPE_CHECKING:
    from pipeline.settings import Settings

SECONDS = 5.0
"""For each answer of a server."""

TEST_NAAN = "99999"
"""Reserved for tests: its ARKs are nobody's, and resolve nowhere."""

MAIL, EZID, SETTINGS = "(services.md#mail)", "(services.md#ezid)", "(settings.md)"


def mail(settings: Settings) -> Iterator[Line]:
    mailer, place = open_mailer(settings), f"{settings.smtp_host}:{settings.smtp_port}"
    if isinstance(mailer, SmtpMailer):
        try:
            dataclasses.replace(mailer, timeout=SECONDS).check()
        except ArklineError as error:
            yield line("server", str(error), f"correct ARKLINE_SMTP_HOST and the login {MAIL}", wrong=True)
        else:
            login = (
                f"accepts the login of {settings.smtp_user}"
                if settings.smtp_user
                else "answers, without login"
            )
            yield line("server", f"{place} {login}; whether it delivers, a mail shows")
        if settings.smtp_tls:
            context = ssl.create_default_context()
            yield certificates.of_server(context, settings.smtp_host, settings.smtp_port, "services.md#mail")
        clear = bool(settings.smtp_user) and not (settings.smtp_tls or settings.smtp_starttls)
        fact = (
            "the password is in clear text" if clear else "used" if settings.smtp_starttls else "as it is set"
        )
        yield line("tls", fact, f"set ARKLINE_SMTP_STARTTLS=1 {MAIL}", warn=clear)
    else:
        fact = f"none: mail is written to {settings.outbox_folder}"
        yield line("server", fact, f"set ARKLINE_SMTP_HOST {MAIL}", warn=True)
    known = bool(settings.operator_mail)
    fact = f"is{'' if known else ' not'} notified of damage in storage and of outages"
    yield line("operator", fact, f"set ARKLINE_OPERATOR_MAIL {SETTINGS}", warn=not known)
    fact = settings.public_url or "mails have none"
    yield line("links", fact, f"set ARKLINE_PUBLIC_URL {SETTINGS}", warn=not settings.public_url)


def collections(settings: Settings) -> Iterator[Line]:
    folder, read, wrong = Profiles(settings.profiles), list[Profile](), list[str]()
    for name in folder.names():
        try:
            read.append(folder.get(name))
        except ArklineError as error:
            wrong.append(str(error))
    fact = "; ".join(wrong) or f"{len(read)} in {settings.profiles}"
    yield line("profiles", fact, "correct them (profiles.md)", wrong=bool(wrong) or not read)
    tests = [profile.name for profile in read if profile.naan == TEST_NAAN]
    fact = f"of tests in {', '.join(tests)}: not permanent" if tests else "of your own in every profile"
    yield line("naan", fact, "give the profiles a NAAN of your own (profiles.md)", warn=bool(tests))
    if plugin := plugins.choosing(plugins.MINTER):
        yield unknown("minter", f"the plugin of {plugin} has no test", f"make a test deposit {EZID}")
        return
    timeout = min(SECONDS, settings.connect_timeout)
    minter = EzidMinter(settings.model_copy(update={"connect_timeout": timeout}))
    for profile in filter(minter.uses_service, read):
        try:
            minter.check(profile)
            yield line(
                f"minter of {profile.name}", "EZID answers; whether it accepts a name, a deposit shows"
            )
        except ArklineError as error:
            step = f"correct ARKLINE_EZID_URL and the login {EZID}"
            yield line(f"minter of {profile.name}", str(error), step, wrong=True)
