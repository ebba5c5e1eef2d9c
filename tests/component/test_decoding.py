"""Foreign bytes are decoded in a process with limits, which can be killed alone."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.attempt import UNATTENDED, Attempt, CheckedAttempt
from pipeline.containers.unpack import Limits
from pipeline.decoding import calls, child, limits
from pipeline.decoding import decoder as decoder_module
from pipeline.decoding.decoder import SECONDS, Decoder, Request
from pipeline.description import metadata
from pipeline.manifests.checkm import ManifestProfile, parse_rows
from pipeline.outcome import AttemptOver, StepFailed
from pipeline.settings import Settings
from pipeline.states import FailureKind
from pipeline.working_storage.workspace import DownloadedFile
from tests.support.manifests import CONTAINERS, manifest
from tests.support.packing import FILES, on_disk, tar_with_header, zipped

LIMITS = Limits(entries=100_000, bytes=1 << 40, ratio=200)
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="macOS has no such limit")


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    decoder = Decoder(Settings(), seconds=2)
    yield decoder
    decoder.close()


def unpack(
    decoder: Decoder, archive: Path, folder: Path, attempt: Attempt = UNATTENDED
) -> tuple[DownloadedFile, ...]:
    return calls.unpack(decoder, archive, archive.name, folder / "unpacked", LIMITS, attempt)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(StepFailed) as caught:
        call()
    assert caught.value.kind is FailureKind.CONTENT
    return caught.value.message


def still_works(decoder: Decoder, folder: Path) -> bool:
    archive = folder / "good.zip"
    folder.mkdir(exist_ok=True)
    archive.write_bytes(zipped(FILES))
    return len(calls.unpack(decoder, archive, "good.zip", folder / "good", LIMITS, UNATTENDED)) == len(FILES)


PROBES = """
import json, os, re, resource, socket, sys
sys.path[:] = json.loads(sys.argv[2])
from pipeline.decoding import server

def probe(given, body, attempt):
    try:
        socket.create_connection(("127.0.0.1", given["port"]), 5).close()
        network = "reached"
    except OSError as error:
        network = error.strerror
    files = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc") else 0
    yield {"network": network, "environment": dict(os.environ), "files": files,
           "core": resource.getrlimit(resource.RLIMIT_CORE)[0]}

def hang(given, body, attempt):
    # holds the interpreter's lock for ever, as a pattern of a library does
    yield bool(re.match("(a+)+$", "a" * 60 + "b"))

def write(given, body, attempt):
    for path in given["paths"]:
        try:
            with open(path, "wb") as file:
                file.write(b"x")
            yield "written"
        except OSError as error:
            yield error.strerror
    try:
        os.symlink("/etc/passwd", given["link"])
        yield "linked"
    except OSError as error:
        yield error.strerror

def read(given, body, attempt):
    for path in given["paths"]:
        try:
            with open(path, "rb") as file:
                yield "read" if file.read() else "empty"
        except OSError as error:
            yield error.strerror

def calls(given, body, attempt):
    import ctypes, fcntl
    path, worker, libc = given["path"], given["worker"], ctypes.CDLL(None, use_errno=True)
    def raw(*arguments):
        if libc.syscall(*map(ctypes.c_long, arguments)) < 0:
            raise OSError(ctypes.get_errno(), "")
    tried = {
        "chmod": lambda: os.chmod(path, 0o666),
        "chown": lambda: os.chown(path, 1, 1),
        "utime": lambda: os.utime(path, (1, 1)),
        "setxattr": lambda: os.setxattr(path, "user.a", b"b"),
        "kill": lambda: os.kill(worker, 0),
        "signal by pidfd": lambda: os.pidfd_open(worker),
        "owner of signals": lambda: fcntl.fcntl(0, fcntl.F_SETOWN, worker),
        "limits of the worker": lambda: resource.prlimit(worker, resource.RLIMIT_CORE),
        "socket": lambda: socket.socket(socket.AF_UNIX),
        "socketpair": lambda: socket.socketpair(),
        "exec": lambda: os.execv("/bin/true", ["true"]),
        "fork": lambda: os.fork() or os._exit(0),
        "flags of a file": lambda: fcntl.ioctl(os.open(path, os.O_RDONLY), 0x40086602, bytes(8)),
        "io_uring": lambda: raw(425, 1, 0),
        "fchmodat2": lambda: raw(452, -100, 0, 0, 0),
    }
    for name, call in tried.items():
        try:
            call()
            yield name, "done"
        except OSError as error:
            yield name, os.strerror(error.errno)

def raised(given, body, attempt):
    for name in ("RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_NOFILE"):
        hard = resource.getrlimit(getattr(resource, name))[1]
        try:
            resource.setrlimit(getattr(resource, name), (hard + 1, hard + 1))
            yield name, "raised"
        except (OSError, ValueError):
            yield name, hard

def thread(given, body, attempt):
    import threading
    done = []
    started = threading.Thread(target=done.append, args=("ran",))
    started.start()
    started.join()
    yield from done

server.FUNCTIONS |= {
    "probe": probe, "hang": hang, "write": write, "read": read, "calls": calls, "thread": thread,
    "raised": raised
}
server.main()
"""
HANG = Request("hang", "a test", {})


def probing(seconds: int = SECONDS) -> Decoder:
    """A decoder that can be asked for the functions of PROBES as well."""
    child._PROGRAM = PROBES
    return Decoder(Settings(), seconds)


@pytest.fixture(autouse=True)
def _program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_PROGRAM", child._PROGRAM)


def stopped_after(seconds: float) -> Attempt:
    end = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() > end:
            raise AttemptOver("an operator failed the job")

    return CheckedAttempt(check)


def children(decoder: Decoder) -> set[int]:
    """The processes of the decoder's session."""
    server = decoder._server
    assert server is not None
    listed = subprocess.run(["ps", "-eo", "pid=,sess=,stat="], capture_output=True, text=True, check=True)
    rows = (line.split() for line in listed.stdout.splitlines())
    return {
        int(pid) for pid, session, state in rows if int(session) == server.running.pid and state[0] != "Z"
    }


def test_a_container_arrives_as_it_was_packed(decoder: Decoder, tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    archive.write_bytes(zipped(FILES))

    files = unpack(decoder, archive, tmp_path)

    assert on_disk(tmp_path / "unpacked") == FILES
    assert {file.path: file.size for file in files} == {name: len(data) for name, data in FILES.items()}


def test_a_decoder_that_hangs_is_ended_by_the_limit_of_processor_time() -> None:
    hanging = probing(seconds=1)

    message = refusal(lambda: list(hanging.decode(HANG, UNATTENDED)))

    assert message.startswith("reading a test needs more than 1 seconds of processor time")
    hanging.close()


def test_an_attempt_that_is_over_kills_the_process_that_decodes(tmp_path: Path) -> None:
    hanging = probing(seconds=600)

    with pytest.raises(AttemptOver):
        list(hanging.decode(HANG, stopped_after(1.0)))

    assert hanging._server is None
    assert still_works(hanging, tmp_path)
    hanging.close()


def test_a_negative_size_in_a_tar_does_not_loop(decoder: Decoder, tmp_path: Path) -> None:
    """CVE-2025-8194."""
    archive = tmp_path / "negative.tar"
    archive.write_bytes(tar_with_header(b"17 size=-1000000\n"))

    assert "'negative.tar'" in refusal(lambda: unpack(decoder, archive, tmp_path))


def test_a_zip_directory_of_a_gigabyte_is_refused_before_it_is_read(decoder: Decoder, tmp_path: Path) -> None:
    archive, size = tmp_path / "sparse.zip", 1 << 30
    with archive.open("wb") as file:
        file.write(b"PK\x03\x04")
        file.seek(4 + size)
        end = b"PK\x05\x06" + bytes(4) + b"\xff\xff\xff\xff" + size.to_bytes(4, "little")
        file.write(end + (4).to_bytes(4, "little") + bytes(2))

    assert "has a directory of 1,073,741,824 bytes" in refusal(lambda: unpack(decoder, archive, tmp_path))


@LINUX
def test_memory_beyond_the_limit_is_a_failure_of_the_content(tmp_path: Path) -> None:
    small = Decoder(Settings(decoding_memory=100_000_000))
    archive = tmp_path / "many.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for number in range(60_000):
            packed.writestr(f"{number:05}{'n' * 200}", b"")

    message = refusal(lambda: unpack(small, archive, tmp_path))

    assert message.startswith("reading container 'many.zip' needs more than 100 MB of memory")
    assert still_works(small, tmp_path)
    small.close()


def statements(decoder: Decoder, folder: Path, files: dict[str, bytes], **kind: bool) -> calls.Statements:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    downloaded = tuple(
        DownloadedFile(path=path, size=len(data), sha512="0" * 128) for path, data in files.items()
    )
    given = {"container": False, "update": False} | kind
    return calls.read_statements(
        decoder, folder, downloaded, UNATTENDED, container=given["container"], update=given["update"]
    )


BOMB = b"x" * 51_000_000


@pytest.mark.parametrize(
    ("name", "kind"),
    [("mrt-manifest.txt", "container"), ("mrt-delete.txt", "update"), ("manifest-md5.txt", "container")],
)
def test_a_list_that_unpacks_to_megabytes_is_refused_unread(
    decoder: Decoder, tmp_path: Path, name: str, kind: str
) -> None:
    bag = b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"
    files = {"bagit.txt": bag, name: BOMB}

    message = refusal(lambda: statements(decoder, tmp_path, files, **{kind: True}))

    assert name in message
    assert "is larger than 50,000,000 bytes" in message


def test_a_line_without_end_is_refused(decoder: Decoder, tmp_path: Path) -> None:
    files = {"mrt-delete.txt": b"x" * 10_000_000}

    message = refusal(lambda: statements(decoder, tmp_path, files, update=True))

    assert "line 1 is longer than 131,072 characters" in message


def test_a_deletion_list_has_as_many_entries_as_a_container(decoder: Decoder, tmp_path: Path) -> None:
    files = {"mrt-delete.txt": b"".join(b"%d\n" % number for number in range(100_001))}

    message = refusal(lambda: statements(decoder, tmp_path, files, update=True))

    assert "producer/mrt-delete.txt has more than 100,000 entries" in message


def test_elements_within_elements_do_not_multiply_the_description(decoder: Decoder, tmp_path: Path) -> None:
    title, depth = b"<title xmlns='http://purl.org/dc/elements/1.1/'>", 90
    nested = title * depth + b"x" * 500_000 + b"</title>" * depth

    message = refusal(lambda: statements(decoder, tmp_path, {"mrt-dc.xml": nested}))

    assert "the description of the object has more than 2,000,000 characters" in message


def test_elements_without_end_stay_below_the_limit_of_memory(decoder: Decoder, tmp_path: Path) -> None:
    files = {"mrt-dc.xml": b"<a>" + b"<b/>" * 249_000 + b"</a>"}

    assert statements(decoder, tmp_path, files).elements == metadata.NO_ELEMENTS


def test_statements_arrive_with_their_kinds(decoder: Decoder, tmp_path: Path) -> None:
    files = {
        "a": b"a",
        "mrt-delete.txt": b"old/a\r\nb c\n",
        "mrt-erc.txt": b"erc:\nwho: Tracy\n",
        "mrt-embargo.txt": b"embargoEndDate: none\n",
    }

    given = statements(decoder, tmp_path, files, update=True)

    assert given.deletions == ("producer/old/a", "producer/b c")
    assert given.elements.erc == {"who": ("Tracy",)}
    assert given.checks == ("producer/mrt-embargo.txt: no embargo",)


def test_a_large_manifest_is_read_by_the_process_as_by_the_reader(decoder: Decoder) -> None:
    rows = "".join(
        f"https://x.edu/{number} | md5 | {number:032x} | {number} | | folder/{number} | image/png\n"
        for number in range(2000)
    )
    data = f"{rows}#%eof\n".encode()
    assert len(data) > calls.SMALL_MANIFEST
    parse = calls.manifest_reader(decoder, UNATTENDED)

    read = tuple(parse(data, "m", ManifestProfile.OBJECT, True, None))
    assert read == parse_rows(data, "m", ManifestProfile.OBJECT)
    assert "more than 5 rows" in refusal(lambda: tuple(parse(data, "m", ManifestProfile.OBJECT, True, 5)))


def test_a_batch_manifest_of_100_000_rows_is_read_within_the_limits_of_the_process() -> None:
    rows = [f"http://x.edu/collection/box-{n:06}/object.zip | | | | | {n:06}.zip" for n in range(100_000)]
    data = manifest(*rows, profile=CONTAINERS)
    settings = Settings()
    assert 6_000_000 < len(data) < settings.manifest_limit

    with closing(Decoder(settings)) as decoder:
        parse = calls.manifest_reader(decoder, UNATTENDED)
        rows_read = parse(data, "batch.checkm", ManifestProfile.CONTAINER_BATCH, True, settings.batch_jobs)
        read = tuple(rows_read)

    assert (len(read), read[-1].name) == (100_000, "099999.zip")


def test_a_mistake_in_a_decoder_arrives_with_its_traceback(decoder: Decoder, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="KeyError: 'no-such-function'"):
        list(decoder.decode(Request("no-such-function", "a test", {}, bytes(10_000_000)), UNATTENDED))
    assert still_works(decoder, tmp_path)


@LINUX
def test_a_body_beyond_the_memory_leaves_nothing_for_the_next_request(tmp_path: Path) -> None:
    small = Decoder(Settings(decoding_memory=100_000_000))

    message = refusal(
        lambda: list(small.decode(Request("hang", "a test", {}, bytes(150_000_000)), UNATTENDED))
    )

    assert "100 MB of memory" in message
    assert still_works(small, tmp_path)
    small.close()


def test_a_good_decoder_is_used_again(decoder: Decoder, tmp_path: Path) -> None:
    assert still_works(decoder, tmp_path / "1")
    server = decoder._server

    assert still_works(decoder, tmp_path / "2")

    assert decoder._server is server

    assert still_works(decoder, tmp_path)


@LINUX
def test_a_decoder_has_no_environment_no_network_and_no_file_of_the_worker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ARKLINE_ZK_USER", "arkline")
    monkeypatch.setenv("ARKLINE_ZK_PASSWORD", "secret")
    asked = probing()

    with socket.create_server(("127.0.0.1", 0)) as listening, (tmp_path / "open").open("w"):
        port = listening.getsockname()[1]
        request = Request("probe", "a test", {"port": port}, reads=("/proc/self/fd",))
        (given,) = asked.decode(request, UNATTENDED)

    asked.close()
    assert given["environment"].keys().isdisjoint({"ARKLINE_ZK_PASSWORD", "PATH", "HOME"})
    assert given["core"] == 0
    assert given["files"] <= 6  # input, output, errors, the pipe that says that it lives, this folder
    if limits.restricts_calls():
        assert given["network"] == "Operation not permitted"
    elif may_leave_network():
        assert given["network"] == "Network is unreachable"


@LINUX
def test_a_decoder_writes_only_where_the_container_is_unpacked(tmp_path: Path) -> None:
    if not limits.restricts_files():
        pytest.skip("this kernel has no Landlock")
    asked = probing()
    (tmp_path / "job" / "folder").mkdir(parents=True)
    (tmp_path / "mine").write_text("mine")
    inside = [str(tmp_path / "job" / name) for name in ("a", "folder/b")]
    outside = [str(tmp_path / name) for name in ("mine", "new", "job/../up")]
    given = {"paths": [*inside, *outside], "link": str(tmp_path / "job" / "link")}

    def outcomes(folder: str) -> list[str]:
        request = Request("write", "a test", given, file_bytes=100, writes=folder)
        return list(asked.decode(request, UNATTENDED))

    allowed, nothing = outcomes(str(tmp_path / "job")), outcomes("")

    asked.close()
    assert allowed == ["written"] * 2 + ["Permission denied"] * 4
    assert nothing == ["Permission denied"] * 6
    assert (tmp_path / "mine").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"job", "mine"}


@LINUX
def test_a_decoder_reads_its_container_and_no_secret_of_the_worker(tmp_path: Path) -> None:
    if not limits.restricts_files():
        pytest.skip("this kernel has no Landlock")
    asked = probing()
    (tmp_path / "job").mkdir()
    for name in ("job/container", "token", "other.zip"):
        (tmp_path / name).write_text("content")
    container = str(tmp_path / "job" / "container")
    secrets = [str(tmp_path / "token"), str(tmp_path / "other.zip"), f"/proc/{os.getpid()}/environ"]
    request = Request("read", "a test", {"paths": [container, *secrets]}, reads=(container,))

    outcomes = list(asked.decode(request, UNATTENDED))

    asked.close()
    assert outcomes == ["read"] + ["Permission denied"] * 3


@LINUX
def test_a_decoder_makes_no_call_that_changes_attributes_signals_connects_or_starts_a_process(
    tmp_path: Path,
) -> None:
    if not limits.restricts_calls():
        pytest.skip("this kernel has no seccomp, or this machine no table of its calls")
    asked = probing()
    file = tmp_path / "file"
    file.write_text("content")
    before = file.stat()
    arguments = {"path": str(file), "worker": os.getpid()}
    request = Request("calls", "a test", arguments, reads=(str(tmp_path),))

    outcomes = dict(asked.decode(request, UNATTENDED))

    asked.close()
    assert len(outcomes) == 15
    assert set(outcomes.values()) == {"Operation not permitted"}, outcomes
    assert (file.stat().st_mode, file.stat().st_mtime) == (before.st_mode, before.st_mtime)


@LINUX
def test_a_decoder_raises_none_of_its_limits_as_root_either() -> None:
    asked = probing(seconds=7)
    request = Request("raised", "a test", {}, most=(3_000_000, 2000), file_bytes=10)

    outcomes = dict(asked.decode(request, UNATTENDED))

    asked.close()
    assert outcomes == {
        "RLIMIT_AS": Settings().decoding_memory,
        "RLIMIT_CPU": 7 + 3 + 2 + limits.HARD,
        "RLIMIT_FSIZE": 10,
        "RLIMIT_NOFILE": limits.OPEN_FILES,
    }


@LINUX
def test_a_worker_logs_the_protections_that_its_kernel_refuses(caplog: pytest.LogCaptureFixture) -> None:
    asked = probing()
    without = "from pipeline.decoding import limits\nlimits._version = lambda: 0\n"
    child._PROGRAM = PROBES.replace("server.main()", f"{without}server.main()")
    decoder_module._warn_of.cache_clear()

    for _ in range(2):
        list(asked.decode(Request("raised", "a test", {}), UNATTENDED))

    asked.close()
    (entry,) = [record.getMessage() for record in caplog.records if "decoded without" in record.getMessage()]
    assert "decoded without rules for files (Landlock)" in entry


@LINUX
def test_a_decoder_may_start_a_thread_of_its_own() -> None:
    if os.geteuid() != 0:
        pytest.skip("the limit of processes counts threads of other users than root")
    asked = probing()
    assert list(asked.decode(Request("thread", "a test", {}), UNATTENDED)) == ["ran"]
    asked.close()


def may_leave_network() -> bool:
    """Whether this system lets a process of this user have a network of its own."""
    flag = "--net" if os.geteuid() == 0 else "--user"
    return (
        subprocess.run(["unshare", flag, "--net", "true"], capture_output=True, check=False).returncode == 0
    )


@LINUX
def test_the_process_that_decodes_ends_with_its_worker() -> None:
    """SIGKILL leaves the worker no time to end anything."""
    program = (
        "import threading; from tests.component.test_decoding import *; "
        "hanging = probing(seconds=600); "
        "threading.Thread(target=lambda: print(*both(hanging), flush=True)).start(); "
        "list(hanging.decode(HANG, UNATTENDED))"
    )
    worker = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    processes = [int(pid) for pid in worker.stdout.readline().split()]
    assert len(processes) == 2

    worker.kill()
    worker.communicate()

    wait_until(lambda: not any(_lives(pid) for pid in processes))


def wait_until(reached: Callable[[], bool]) -> None:
    """The system reports neither a fork nor an end of a process that is no child of this one."""
    while not reached():
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def both(decoder: Decoder) -> list[int]:
    """The server and the process that decodes, once both run."""
    wait_until(lambda: decoder._server is not None and len(children(decoder)) == 2)
    assert decoder._server is not None
    server = decoder._server.running.pid
    return [server, *children(decoder) - {server}]


@pytest.mark.parametrize("victim", [0, 1], ids=["server", "child"])
def test_a_decoder_that_is_killed_from_outside_is_a_transient_fault(tmp_path: Path, victim: int) -> None:
    hanging = probing(seconds=600)
    killer = threading.Thread(target=lambda: os.kill(both(hanging)[victim], signal.SIGKILL))
    killer.start()

    with pytest.raises(StepFailed, match="was killed from outside") as caught:
        list(hanging.decode(HANG, UNATTENDED))
    killer.join()

    assert caught.value.kind is FailureKind.TRANSIENT
    assert still_works(hanging, tmp_path)
    hanging.close()
