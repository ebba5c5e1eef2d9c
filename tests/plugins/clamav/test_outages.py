"""A clamd that is away lets jobs wait; a clamd that fails on one file leaves that file unchecked."""

import os
import signal
import socket
import struct
import threading
from pathlib import Path

import pytest

from pipeline.checks import CheckedFile, CheckVerdict, Obstacle, ServiceAway, ServiceDied
from plugins.clamav import check as check_module
from plugins.clamav.clamd import Clamd
from plugins.clamav.samples import eicar
from tests.plugins.clamav.conftest import Context, Site, check, file, scanned
from tests.servers import clamd
from tests.support.polling import eventually


class Cancelled(Exception):
    """What the context of a cancelled check raises."""


class CancelledContext:
    def __init__(self) -> None:
        self.cancelled = False

    def alive(self) -> None:
        if self.cancelled:
            raise Cancelled


def pipe(folder: Path) -> CheckedFile:
    """A file whose bytes arrive when the test wants them to."""
    source = folder / "pipe"
    os.mkfifo(source)
    return CheckedFile("deposit/pipe", source, 1_000_000, "0" * 128)


def stream_of(content: bytes) -> bytes:
    """As clamd gets it."""
    return struct.pack("!I", len(content)) + content + bytes(4)


@pytest.mark.parametrize("address", ["unix:/nowhere/clamd.ctl", "tcp:127.0.0.1:1", "tcp:[::1]:1"])
def test_where_no_clamd_answers_the_service_is_away(address: str) -> None:
    with pytest.raises(ServiceAway) as refusal:
        check(address)

    assert address in str(refusal.value)


def test_a_clamd_that_is_killed_in_the_middle_of_a_file_has_died_at_it(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_module, "RETURN_SECONDS", 1.0)
    server = site()
    guest = check(server.unix)
    half = pipe(tmp_path)

    def write() -> None:
        with half.source.open("wb", buffering=0) as writer:
            writer.write(bytes(500_000))
            server.process.kill()

    writing = threading.Thread(target=write)
    writing.start()
    with pytest.raises(ServiceDied):
        list(guest.run([half], Context()))
    writing.join()

    server.start()
    [finding] = guest.run([file(tmp_path, eicar())], Context())
    assert finding.verdict is CheckVerdict.FOUND


def test_a_clamd_that_comes_back_in_the_middle_of_a_file_gets_the_file_again(
    site: Site, tmp_path: Path
) -> None:
    server = site()
    guest = check(server.unix)
    half = pipe(tmp_path)

    def write() -> None:
        with half.source.open("wb", buffering=0) as writer:
            writer.write(bytes(500_000))
            server.process.kill()
        server.start()
        with half.source.open("wb", buffering=0) as writer:
            writer.write(bytes(1000) + eicar())

    writing = threading.Thread(target=write)
    writing.start()
    [finding] = guest.run([half], Context())
    writing.join()

    assert finding.verdict is CheckVerdict.FOUND


def test_a_clamd_that_is_killed_between_two_files_is_away_and_the_first_has_its_finding(
    site: Site, tmp_path: Path
) -> None:
    server = site()
    findings = check(server.unix).run([file(tmp_path, b"a"), file(tmp_path, b"b", "b")], Context())

    assert next(findings).verdict is CheckVerdict.FINE
    server.process.kill()

    with pytest.raises(ServiceAway) as away:
        next(findings)
    assert not isinstance(away.value, ServiceDied)


def test_a_clamd_that_hangs_is_away(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = site()
    guest = check(server.unix)
    findings = guest.run([file(tmp_path, b"a"), file(tmp_path, b"b", "b")], Context())
    next(findings)
    monkeypatch.setattr(check_module, "QUICK", 0.5)
    monkeypatch.setattr(check_module, "FILE_SECONDS", 0.5)
    server.process.send_signal(signal.SIGSTOP)

    with pytest.raises(ServiceAway) as refusal:
        next(findings)
    with pytest.raises(ServiceAway):
        check(server.unix)

    assert "does not answer" in str(refusal.value)


def test_a_file_that_clamd_does_not_finish_is_timed_out_and_the_next_is_checked(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = site()
    guest = check(server.unix)
    findings = guest.run([file(tmp_path, clamd.ENDLESS), file(tmp_path, eicar(), "b")], Context())

    with monkeypatch.context() as short:
        short.setattr(check_module, "FILE_SECONDS", 1.0)
        found = [next(findings)]
    found += findings

    assert [(each.verdict, each.code) for each in found] == [
        (CheckVerdict.UNCHECKED, Obstacle.TIMED_OUT),
        (CheckVerdict.FOUND, clamd.EICAR_NAME),
    ]


def test_files_are_checked_while_clamd_reloads_its_signatures(site: Site, tmp_path: Path) -> None:
    server = site()
    guest = check(server.unix)
    (server.database / "more.ndb").write_text(f"Arkline.Test.More:0:*:{b'more and more'.hex()}\n")
    one = file(tmp_path, b"more and more")

    assert Clamd(server.unix).ask("RELOAD", 10, lambda: None) == "RELOADING"

    codes = eventually(lambda: [each.code for each in guest.run([one], Context()) if each.code])
    assert codes == ["Arkline.Test.More.UNOFFICIAL"]


def test_another_server_at_the_address_is_no_clamd() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(1000)
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(ServiceAway) as refusal:
            check(f"tcp:127.0.0.1:{listener.getsockname()[1]}")

    assert "is no clamd: 'HTTP/1.1 400 Bad Request" in str(refusal.value)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"stream: what?\0", Obstacle.INVALID_ANSWER),
        (b"stream: OK or so\0", Obstacle.INVALID_ANSWER),
        (b"\xff\xfe\0", Obstacle.INVALID_ANSWER),
        (b"x" * 300_000, Obstacle.INVALID_ANSWER),
        (b"stream: Time limit reached ERROR\0", Obstacle.TIMED_OUT),
        (b"stream: Can't allocate memory ERROR\0", Obstacle.OUT_OF_MEMORY),
        (b"stream: Can't parse the file ERROR\0", "scanner-error"),
        (b"", Obstacle.CRASHED),
    ],
)
def test_a_file_with_no_clear_answer_is_unchecked(
    server: clamd.Server, tmp_path: Path, answer: bytes, code: str
) -> None:
    with clamd.Relay(server.port) as relay:
        guest = check(relay.address)
        findings = guest.run(
            [file(tmp_path, b"a"), file(tmp_path, b"b", "b"), file(tmp_path, b"c", "c")], Context()
        )
        assert next(findings).verdict is CheckVerdict.FINE

        relay.answer, relay.after = answer, stream_of(b"b")  # this file's stream alone
        finding = next(findings)
        assert (finding.path, finding.verdict, finding.code) == ("deposit/b", CheckVerdict.UNCHECKED, code)

        assert next(findings).verdict is CheckVerdict.FINE


def test_a_clamd_that_cannot_write_what_it_gets_is_away(server: clamd.Server, tmp_path: Path) -> None:
    with clamd.Relay(server.port) as relay:
        guest = check(relay.address)
        relay.answer, relay.after = b"Error writing to temporary file ERROR\0", stream_of(b"a")

        with pytest.raises(ServiceAway) as refusal:
            list(guest.run([file(tmp_path, b"a")], Context()))

    assert "Error writing to temporary file" in str(refusal.value)


def test_a_clamd_without_its_temporary_folder_is_away(site: Site, tmp_path: Path) -> None:
    server = site()
    guest = check(server.unix)
    (tmp_path / "clamd" / "tmp").rmdir()

    with pytest.raises(ServiceAway):
        list(guest.run([file(tmp_path, b"a")], Context()))


def test_a_file_whose_connection_was_lost_once_is_scanned_again(server: clamd.Server, tmp_path: Path) -> None:
    with clamd.Relay(server.port) as relay:
        guest = check(relay.address)
        relay.answer, relay.after, relay.times = b"", stream_of(b"a"), 1

        [finding] = guest.run([file(tmp_path, b"a")], Context())

    assert (finding.verdict, relay.streams) == (CheckVerdict.FINE, 1)


def test_a_cancelled_scan_ends_at_once(site: Site, tmp_path: Path) -> None:
    server = site()
    context = CancelledContext()
    findings = check(server.unix).run([file(tmp_path, clamd.ENDLESS)], context)
    timer = threading.Timer(0.3, lambda: setattr(context, "cancelled", True))
    timer.start()

    with pytest.raises(Cancelled):
        next(findings)
    timer.join()
    assert server.answers()


def test_no_answer_of_several_is_lost(server: clamd.Server, tmp_path: Path) -> None:
    with clamd.Relay(server.port) as relay:
        guest = check(relay.address)
        relay.answer = b"stream: Heuristics.Encrypted.Zip FOUND\0stream: Worm FOUND\0"
        relay.after = stream_of(b"a")

        found = list(guest.run([file(tmp_path, b"a")], Context()))

    assert [(each.verdict, each.code) for each in found] == [
        (CheckVerdict.UNCHECKED, Obstacle.ENCRYPTED),
        (CheckVerdict.FOUND, "Worm"),
    ]


def test_a_large_file_gives_the_context_time(server: clamd.Server, tmp_path: Path) -> None:
    context = Context()

    list(check(server.unix).run([file(tmp_path, bytes(5_000_000))], context))

    assert context.asked >= 1
    assert scanned(server.unix, file(tmp_path, b"again"))[0].verdict is CheckVerdict.FINE
