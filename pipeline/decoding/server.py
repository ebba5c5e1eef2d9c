"""The decoding server of one worker process: forks a process per request and decodes nothing itself.

A fork costs a few milliseconds, a new interpreter about 200. A request is two lengths, the request in JSON,
and a body, which only the forked process reads. `FUNCTIONS` read untrusted bytes and yield results: one line
of JSON per result, and one for the end; `pipeline.decoding.calls` has the worker's side. When its worker has
ended, the server kills the forked process and ends.
"""

import gc
import json
import os
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.attempt import Attempt, Progress
from pipeline.causes import FailureCause
from pipeline.containers import bag, declared
from pipeline.containers.declared import UnpackedContainer
from pipeline.containers.unpack import Limits, unpack
from pipeline.decoding import limits
from pipeline.decoding.wire import ALIVE_INTERVAL, HEADER, INPUT, OUTPUT, line, read
from pipeline.description import metadata
from pipeline.manifests import lines
from pipeline.manifests.checkm import ManifestProfile, parse_rows
from pipeline.outcome import Later, StepFailed, WaitKind, content
from pipeline.states import FailureKind
from pipeline.tables import workbook
from pipeline.tables.content import TableFormat, TableUnreadable

ITEM, ALIVE, DONE, MEMORY, ENDED = "item", "alive", "done", "memory", "ended"
OPEN = "open"
"""The message with the protections that the kernel lacks."""
ADMIT = "admit"
"""The question whether that many bytes may be written; the worker answers with the bytes that may."""

ANSWER = struct.Struct(">Q")
_FAILED, _LATER, _OS_ERROR, _MISTAKE = "failed", "later", "os-error", "mistake"


def of_error(error: BaseException, traceback: Callable[[], str]) -> bytes:
    match error:
        case StepFailed():
            cause = error.cause and error.cause.model_dump()
            return line(_FAILED, error.kind, error.message, error.retry_after, cause)
        case Later():
            return line(_LATER, error.kind, error.name, error.message, error.wait)
        case OSError():
            return line(_OS_ERROR, error.errno, error.strerror or str(error), str(error.filename or ""))
        case _:
            return line(_MISTAKE, traceback())


def error_of(kind: str, values: list[Any]) -> Exception:
    """The error that `of_error` wrote."""
    match kind:
        case "failed":
            cause = values[3] and FailureCause.model_validate(values[3])
            return StepFailed(FailureKind(values[0]), values[1], values[2]).because(cause)
        case "later":
            return Later(WaitKind(values[0]), values[1], values[2], values[3])
        case "os-error":
            return OSError(values[0], values[1], *filter(None, values[2:]))
        case _:
            return RuntimeError(values[0] if values else kind)


CHECK, REMARK, DIGEST, DELETION, ERC, DUBLIN_CORE = (
    "check",
    "remark",
    "digest",
    "deletion",
    "erc",
    "dublin-core",
)


@dataclass(frozen=True, slots=True)
class _File:
    size: int
    sha512: str


Arguments = dict[str, Any]
Function = Callable[[Arguments, bytes, Attempt], Iterator[Any]]


def _unpack(given: Arguments, _body: bytes, attempt: Attempt) -> Iterator[Any]:
    limits = Limits(**given["limits"])
    for file in unpack(Path(given["path"]), given["name"], Path(given["target"]), limits, attempt):
        yield file.path, file.size, file.sha512, file.name_encoding, file.raw_name


def _statements(given: Arguments, body: bytes, attempt: Attempt) -> Iterator[Any]:
    """The statements of a deposit's files about the deposit; `body` lists the files."""
    producer = Path(given["producer"])
    files = {path: _File(size, sha512) for path, size, sha512 in json.loads(body)}
    del body
    if given["deletes"]:
        yield from ((DELETION, path) for path in lines.read_deletion_list(producer))
    unpacked = UnpackedContainer(producer, files, attempt)
    if given["container"] and (sentence := declared.check_manifest(unpacked)):
        yield CHECK, sentence
    if given["bags"]:
        yield from ((CHECK, sentence) for sentence in bag.check_bags(unpacked))
    yield from ((REMARK, sentence) for sentence in unpacked.remarks)
    for confirmed in unpacked.confirmed_digests():
        digest = confirmed.digest
        yield DIGEST, confirmed.path, digest.algorithm, digest.value, confirmed.declared_by
    if metadata.EMBARGO in files:
        yield CHECK, metadata.check_embargo(metadata.read_file(producer / metadata.EMBARGO) or b"")
    elements = metadata.read_elements(producer)
    yield from ((ERC, name, values) for name, values in elements.erc.items())
    yield from ((DUBLIN_CORE, name, values) for name, values in elements.dublin_core.items())


def _fetch_lists(given: Arguments, body: bytes, attempt: Attempt) -> Iterator[Any]:
    """The payload of bags that has to be fetched; `body` lists the files that are present."""
    files = {path: _File(size, "") for path, size in json.loads(body)}
    unpacked = UnpackedContainer(Path(given["folder"]), files, attempt)
    for file in bag.files_to_fetch(unpacked, case_fold=given["case_fold"], most=given["most"]):
        yield file.path, file.url, file.size, file.digest.algorithm, file.digest.value, file.where


def _manifest(given: Arguments, body: bytes, _attempt: Attempt) -> Iterator[Any]:
    profile = ManifestProfile(given["profile"])
    for row in parse_rows(body, given["source"], profile, given["case_fold"], given["most"]):
        values = {name: getattr(row, name) for name in row.__slots__ if name != "digest"}
        yield values, row.digest and (row.digest.algorithm, row.digest.value)


def _table(given: Arguments, body: bytes, _attempt: Attempt) -> Iterator[Any]:
    """The names of the sheets, rows and remarks of a spreadsheet."""
    try:
        sheet = workbook.read_sheet(body, TableFormat(given["format"]), given["sheet"])
    except TableUnreadable as error:
        raise content(str(TableUnreadable(error.reason, name=given["name"]))) from error
    yield sheet.sheets, sheet.name
    yield from ((row.number, row.cells) for row in sheet.rows)
    yield from ((remark.kind, remark.row, remark.column, remark.text) for remark in sheet.remarks)


def _picture(given: Arguments, _body: bytes, _attempt: Attempt) -> Iterator[Any]:
    # loaded here alone: workers, whose servers are many, make no picture
    from pipeline.decoding.picture import picture

    yield picture(Path(given["path"]))


FUNCTIONS: dict[str, Function] = {
    "unpack": _unpack,
    "fetch lists": _fetch_lists,
    "statements": _statements,
    "manifest": _manifest,
    "table": _table,
    "picture": _picture,
}


BUFFERED = 1 << 16
"""Bytes of results that are buffered before they are sent."""


def main() -> None:
    gc.freeze()
    with suppress(EOFError):
        while True:
            size, body_size = HEADER.unpack(read(HEADER.size))
            _answer(read(size), body_size)


def _answer(request: bytes, body_size: int) -> None:
    ended, lives = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ended)
        _decode(request, body_size)
    os.close(lives)
    _await(child, ended)
    os.close(ended)
    _, status = os.waitpid(child, 0)
    os.write(OUTPUT, line(ENDED, os.waitstatus_to_exitcode(status)))


def _await(child: int, ended: int) -> None:
    """Wait until the child has ended; kill the child if the worker ends, which closes the input."""
    poll = select.poll()
    for descriptor in (INPUT, ended):
        poll.register(descriptor, 0)  # the end of a pipe is always reported
    if any(descriptor == INPUT for descriptor, _ in poll.poll()):
        os.kill(child, signal.SIGKILL)
        sys.exit()


class _Results:
    """Sends the results to the worker; also the attempt that the decoding functions get."""

    def __init__(self, limit: limits.Limits) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._sent = 0.0
        self._admitted = 0 if limit.asks else sys.maxsize

    def add(self, message: bytes) -> None:
        self._buffer += message
        if len(self._buffer) >= BUFFERED:
            self.send()

    def send(self) -> None:
        while self._buffer:
            del self._buffer[: os.write(OUTPUT, self._buffer)]
        self._sent = time.monotonic()

    def check(self) -> None:
        if time.monotonic() - self._sent >= ALIVE_INTERVAL:
            self.add(line(ALIVE))
            self.send()

    def report(self, progress: Progress) -> None:
        limits.allow(self._limit, progress)
        if progress.bytes > self._admitted:
            self.add(line(ADMIT, progress.bytes))
            self.send()
            (self._admitted,) = ANSWER.unpack(read(ANSWER.size))

    def yields(self) -> bool:
        return False


def _decode(data: bytes, body_size: int) -> None:
    """Carry out the request and end this process."""
    last, all_read = line(DONE), False
    # composed while there is memory: the frames of a MemoryError keep theirs in use
    no_memory = line(MEMORY)
    sys.dont_write_bytecode = True
    request = json.loads(data)
    limit = limits.Limits(**request["limits"])
    results = _Results(limit)
    try:
        if missing := limits.apply(limit):
            results.add(line(OPEN, *missing))
        body = read(body_size)
        all_read = True
        decoded = FUNCTIONS[request["function"]](request["arguments"], body, results)
        del body  # the function may drop it as well
        for result in decoded:
            results.add(line(ITEM, result))
    except MemoryError:
        last = no_memory
    except BaseException as error:  # noqa: BLE001 - raised again in the worker
        last = of_error(error, traceback.format_exc)
    with suppress(BrokenPipeError):  # the worker has ended
        results.add(last)
        results.send()
    os._exit(0 if all_read else 1)  # the server would read the rest of a body as the next request
