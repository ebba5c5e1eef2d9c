"""The hostile forms: each is a deposit that must fail, and must harm no other.

Each form has its own host (127.0.1.N), because a pause applies to one host. `callers` has the hostile
requests to the web process.
"""

import gzip
import hashlib
import io
import random
import zipfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from pipeline.manifests.checkm import ManifestProfile
from pipeline.records import SubmissionType
from tests.e2e.collection import manifest
from tests.servers.hostile_source import FAST, VARIANTS, HostileSource
from tests.servers.http_source import HttpSource
from tests.support.packing import entry, tar_with_header, tarred, zipped

PAUSE = 0.5
"""Seconds between two pieces of an answer that never ends: far below the minimum speed."""

FAST_PAUSE = 0.02
"""The same for a source that sends megabytes."""

ASKS_FOR_AN_HOUR = "retry-after-of-400-digits"
"""The only form that no limit ends soon: the source's Retry-After of an hour is obeyed before each retry."""

OBJECT = ManifestProfile.OBJECT.uri
FILES = ManifestProfile.FILE_BATCH.uri

_TITLE = b"<title xmlns='http://purl.org/dc/elements/1.1/'>"
_ENTITIES = b"".join(
    b"<!ENTITY e%d '%s'>" % (n, b"&e%d;" % (n - 1) * 10 if n else b"x" * 100) for n in range(10)
)


@dataclass(frozen=True)
class Attack:
    """A hostile deposit, ready to submit."""

    form: str
    url: str
    kind: SubmissionType


@dataclass(frozen=True)
class Content:
    """What a hostile source serves at one path, and how it is deposited."""

    kind: SubmissionType
    name: str
    body: bytes = b""
    how: Mapping[str, object] | None = None


Make = Callable[[HttpSource], Content]


def _answer(**how: object) -> Make:
    return lambda _: Content(SubmissionType.FILE, "a.bin", b"x" * 1000, how)


def _container(name: str, body: Callable[[], bytes]) -> Make:
    return lambda _: Content(SubmissionType.CONTAINER, name, body())


def _files(*rows: str) -> Make:
    """A manifest of files, one object each."""
    kind = SubmissionType.SINGLE_FILE_BATCH_MANIFEST
    return lambda source: Content(kind, "m.checkm", manifest(FILES, [_at(source, row) for row in rows]))


def _object(*rows: str) -> Make:
    kind = SubmissionType.OBJECT_MANIFEST
    return lambda source: Content(kind, "o.checkm", manifest(OBJECT, [_at(source, row) for row in rows]))


def _at(source: HttpSource, row: str) -> str:
    return row.replace("{base}", source.url(""))


def _many_rows(source: HttpSource) -> Content:
    """The maximum number of rows that fit into a manifest's byte limit: their URLs are `http://a/1`."""
    del source
    rows = [f"http://a/{number}" for number in range(290_000)]
    return Content(SubmissionType.SINGLE_FILE_BATCH_MANIFEST, "m.checkm", manifest(FILES, rows))


def _tar_with_a_header_of_digits() -> bytes:
    """CVE-2024-6232; a Python that reads the header at once reaches a name that climbs out of the folder."""
    return tar_with_header(b"9" * 1_000_000)[: -512 - 1024] + tarred({"../a": b"a"})


def _zip_with_directory_that_claims_a_gigabyte() -> bytes:
    end = b"PK\x05\x06" + bytes(4) + b"\xff\xff\xff\xff" + (1 << 30).to_bytes(4, "little")
    return b"PK\x03\x04" + bytes(1000) + end + (4).to_bytes(4, "little") + bytes(2)


def _zip_of_many_entries() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for number in range(101_000):
            archive.writestr(f"{number}", b"")
    return data.getvalue()


def _zip_of_zips() -> bytes:
    """A list in the container that unpacks to more than any list needs."""
    return zipped({"mrt-manifest.txt": b"x" * 64_000_000, "a.txt": b"a"})


def _xml(name: str, body: bytes) -> Make:
    return _container("x.zip", lambda: zipped({name: body, "a.txt": b"a"}))


CONTENTS: Mapping[str, Make] = {
    ASKS_FOR_AN_HOUR: _answer(status=503, retry_after="9" * 400),
    "content-length-of-5000-digits": _answer(framing="close", headers=(("Content-Length", "9" * 5000),)),
    "header-of-70000-bytes": _answer(headers=(("X-Long", "y" * 70_000),)),
    "redirects-without-end": lambda _: Content(SubmissionType.FILE, "a.bin", b"", {"redirect": "a.bin"}),
    "redirect-to-no-host": _answer(redirect="http://../x"),
    "redirect-to-a-private-network": _answer(redirect="http://10.0.0.1/a"),
    "reason-with-escapes": _answer(status=404, reason="\x1b[2J\x1b]0;x\x07"),
    "body-that-is-cut-for-ever": _answer(cut_after=10, ranges=False),
    "body-in-gzip": _answer(headers=(("Content-Encoding", "gzip"),)),
    "file-that-is-missing": _object(f"{{base}}/a | sha256 | {'0' * 64} | 4 | | a"),
    "rows-beyond-the-limit": _many_rows,
    "manifest-beyond-the-limit": _files(f"{{base}}/a | | | | | {'n' * 5_100_000}"),
    "line-of-megabytes": _files(f"{{base}}/a | | | | | {'n' * 3_000_000}"),
    "manifest-of-other-bytes": lambda _: Content(
        SubmissionType.SINGLE_FILE_BATCH_MANIFEST, "m.checkm", hashlib.shake_128(b"").digest(1_000_000)
    ),
    "urls-that-are-none": _files(
        "http://../x | | | | | a", "file:///etc/passwd | | | | | b", "http://[ | | | | | c"
    ),
    "names-that-climb": _object("{base}/a | | | | | ../../a"),
    "size-of-20-digits": _object(f"{{base}}/a | | | {'9' * 20} | | a"),
    "hundreds-of-dead-hosts": _object(
        *(f"http://127.2.{n // 200}.{n % 200 + 1}:9/a | | | | | {n}" for n in range(300))
    ),
    "zip-bomb": _container("b.zip", lambda: zipped({"zeros": bytes(200_000_000)})),
    "gzip-bomb": _container("b.tar.gz", lambda: gzip.compress(tarred({"zeros": bytes(200_000_000)}), 9)),
    "tar-with-a-header-of-digits": _container("d.tar", _tar_with_a_header_of_digits),
    "tar-with-a-negative-size": _container("d.tar", lambda: tar_with_header(b"17 size=-1000000\n")),
    "zip-directory-of-a-gigabyte": _container("d.zip", _zip_with_directory_that_claims_a_gigabyte),
    "zip-of-101000-entries": _container("d.zip", _zip_of_many_entries),
    "list-of-64-megabytes": _container("l.zip", _zip_of_zips),
    "zip-whose-names-climb": _container("n.zip", lambda: zipped({"../../etc/cron.d/x": b"x"})),
    "tar-with-a-link": _container(
        "l.tar", lambda: tarred([entry("l", type=b"2", linkname="/etc/passwd"), entry("a", b"a")])
    ),
    "container-of-other-bytes": _container("c.zip", lambda: hashlib.shake_128(b"").digest(100_000)),
    "xml-of-entities": _xml(
        "mrt-dc.xml", b"<!DOCTYPE d [" + _ENTITIES + b"]><d>" + _TITLE + b"&e9;</title></d>"
    ),
    "xml-of-nested-elements": _xml("mrt-dc.xml", _TITLE * 90 + b"x" * 500_000 + b"</title>" * 90),
}
"""Forms whose answers end."""

DRIPS = (
    {f"{variant}-as-a-file": (variant, SubmissionType.FILE) for variant in VARIANTS}
    | {
        f"{variant}-as-a-manifest": (variant, SubmissionType.BATCH_MANIFEST)
        for variant in ("endless-header", "endless-body-without-length", "endless-trailers")
    }
    | {variant: (variant, SubmissionType.FILE) for variant in FAST}
)
"""Forms whose answers never end."""

FORMS = (*CONTENTS, *DRIPS)


def prepare(count: int, chance: random.Random, servers: ExitStack) -> list[Attack]:
    """`count` hostile deposits of all forms in turn, in random order, and the sources that serve them.

    If there are fewer than forms: a sample that always has one that drips.
    """
    order = [*chance.sample(sorted(DRIPS), len(DRIPS)), *chance.sample(sorted(CONTENTS), len(CONTENTS))]
    if count < len(order):
        order = [*order[: count // 3], *order[len(DRIPS) : len(DRIPS) + count - count // 3]]
    ready = [_serve(form, number, servers) for number, form in enumerate(order)]
    return [ready[number % len(ready)] for number in range(count)]


def _serve(form: str, number: int, servers: ExitStack) -> Attack:
    host = f"127.0.1.{number + 1}"
    if form in DRIPS:
        variant, kind = DRIPS[form]
        pause = FAST_PAUSE if variant in FAST else PAUSE
        return Attack(form, servers.enter_context(HostileSource(variant, pause, host=host)).url, kind)
    source = servers.enter_context(HttpSource(host=host))
    content = CONTENTS[form](source)
    return Attack(form, source.put(f"/{content.name}", content.body, **(content.how or {})), content.kind)
