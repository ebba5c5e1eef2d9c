"""Answers of sources, receivers of callbacks and EZID: any status line, header and body."""

import shutil
from collections.abc import Iterator
from urllib.parse import unquote_to_bytes, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.attempt import UNATTENDED
from pipeline.errors import ArklineError
from pipeline.fixity import LARGEST_FILE
from pipeline.http.service import LONGEST_PAUSE
from pipeline.http.session import redirection
from pipeline.http.transfer import Headers, Response
from pipeline.identifiers.ezid import MARK, EzidMinter
from pipeline.identifiers.minter import Assignment
from pipeline.names import safe_name
from pipeline.notify.callback import HttpCallback
from pipeline.outcome import LONGEST_RETRY_AFTER, StepFailed
from pipeline.profiles.profile import Profile
from pipeline.settings import Settings
from pipeline.sources.download import VALIDATOR_LENGTH, Download, Downloaded, saved_origin
from pipeline.sources.fetch import HttpFetcher
from pipeline.sources.limits import SourceTimeouts
from tests.servers.raw_answer import RawAnswer
from tests.support.fuzzing import BYTES, NUMBERS, WORDS, result_or_refusal
from tests.support.records import a_job

ARK = "ark:/99999/fk4abc"
OWNER = "ark:/99999/owner"

STATUSES = st.one_of(
    st.sampled_from(
        ["200 OK", "206 Partial", "302 Found", "404 Not Found", "416 Range", "429 Busy", "503 Busy"]
    ),
    st.sampled_from(["200", "999 x", "-1 x", "100 Continue", "204 x", "304 x", "000 x", "1000 x"]),
    WORDS,
)
DATES = st.sampled_from(
    [
        *(
            "Sun, 22 Nov 2026 10:00:00 GMT",
            "Sun, 22 Nov 2026 10:00:00 +" + "9" * 30,
            "Sun, 06 Nov 94 08:49:37",
        ),
        *("Fri, 31 Dec 9999 23:59:59 -0100", "Mon, 01 Jan 0001 00:00:00 +2359", "0"),
    ]
)
VALUES = st.one_of(NUMBERS, DATES, WORDS)
HEADERS = {
    "Retry-After": st.one_of(VALUES).filter(
        lambda value: value.strip().lstrip("+0") not in map(str, range(1, 11))
    ),
    "Content-Length": VALUES,
    "Content-Range": st.tuples(st.sampled_from(["bytes ", "bytes 0-1/", "bytes */", ""]), VALUES).map(
        "".join
    ),
    "ETag": st.tuples(st.sampled_from(['"', 'W/"', ""]), VALUES, st.sampled_from(['"', ""])).map("".join),
    "Last-Modified": VALUES,
    "Date": VALUES,
    "Location": st.one_of(
        VALUES,
        st.sampled_from(
            ["http://../x", "//", "http://[", "http://a:99999/", "file:///etc/passwd", "/\u00e9", "?"]
        ),
    ),
    "Content-Type": VALUES,
    "Content-Disposition": st.tuples(
        st.sampled_from(["attachment; filename=", 'x; filename="', "; filename*=UTF-8''", "filename*=", ""]),
        VALUES,
        st.sampled_from(['"', "", "; filename=a/../b", '\\"']),
    ).map("".join),
    "Content-Encoding": st.one_of(VALUES, st.sampled_from(["gzip", "deflate", "br", "identity"])),
    "Transfer-Encoding": st.one_of(VALUES, st.sampled_from(["chunked", "chunked, chunked", "gzip"])),
    "Connection": VALUES,
    "Set-Cookie": VALUES,
}
HEADER = st.sampled_from(sorted(HEADERS)).flatmap(
    lambda name: HEADERS[name].map(lambda value: f"{name}: {value}\r\n")
)
CHUNKS = st.sampled_from(
    [b"1\r\na\r\n0\r\n\r\n", b"fffffffffffffffffff\r\na", b"-1\r\n", b"1;x\r\na\r\n", b"0\r\nX: y\r\n\r\n"]
)


def answers(*bodies: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Whole answers; half of them are those of a server in order, apart from the body."""
    body = st.one_of(BYTES, CHUNKS, *bodies)
    headers = st.lists(st.one_of(HEADER, WORDS), max_size=5).map("".join)
    head = st.tuples(st.sampled_from(["HTTP/1.1 ", "HTTP/1.0 ", "HTTP/9 ", ""]), STATUSES, headers)
    odd = st.tuples(head, body).map(
        lambda pair: (
            f"{pair[0][0]}{pair[0][1]}\r\n{pair[0][2]}\r\n".encode("utf-8", "surrogatepass") + pair[1]
        )
    )
    usual = st.one_of(*bodies, BYTES).map(
        lambda data: b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data) + data
    )
    return st.one_of(odd, usual)


ANVL = st.lists(
    st.tuples(
        st.sampled_from(["success: ", "error: ", "_status: ", f"{MARK}: ", "", ":"]),
        st.one_of(WORDS, st.just(ARK)),
    ),
    max_size=4,
).map(lambda pairs: "\n".join(map("".join, pairs)).encode("utf-8", "surrogatepass"))

MANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(scope="module")
def server() -> Iterator[RawAnswer]:
    with RawAnswer() as running:
        yield running


@pytest.fixture(scope="module")
def chosen(server: RawAnswer, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(
        home=tmp_path_factory.mktemp("home"),
        allow_networks="127.0.0.0/8",
        fetch_tries=1,
        read_timeout=5,
        ezid_url=server.url,
        ezid_user="u",
    )


def finite(result: object) -> None:
    if isinstance(result, StepFailed) and result.retry_after is not None:
        assert 0 <= result.retry_after <= LONGEST_RETRY_AFTER


@MANY
@given(answer=answers())
def test_the_answer_of_a_source_is_a_file_or_a_refusal(
    answer: bytes, server: RawAnswer, chosen: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server.answer = answer
    folder = tmp_path_factory.mktemp("fuzz")
    part = folder / "a.part"
    with HttpFetcher(chosen, SourceTimeouts(first_pause=0)) as fetcher:
        size = result_or_refusal(lambda: fetcher.size(f"{server.url}/a"))
        download = Download(f"{server.url}/a", folder / "a", part)
        fetched = result_or_refusal(lambda: fetcher.download(download, UNATTENDED))
        finite(fetched)

    assert size is None or isinstance(size, ArklineError) or 0 <= size <= LARGEST_FILE
    if isinstance(fetched, Downloaded) and fetched.name:
        assert safe_name(fetched.name) == fetched.name
        assert "/" not in fetched.name
    origin = saved_origin(part)
    if origin is not None:
        assert len(origin.validator) <= VALIDATOR_LENGTH
        assert origin.validator.isprintable()
    shutil.rmtree(folder)


@MANY
@given(answer=answers())
def test_the_answer_to_a_callback_is_a_delivery_or_a_refusal(
    answer: bytes, server: RawAnswer, chosen: Settings
) -> None:
    server.answer = answer
    profile = Profile(name="demo", owner=OWNER, collections=(OWNER,), callback_url=f"{server.url}/callback")

    finite(result_or_refusal(lambda: HttpCallback(chosen, pause=0).deliver(a_job(), profile, 1)))


@MANY
@given(answer=answers(ANVL))
def test_the_answer_of_ezid_is_understood_or_refused(
    answer: bytes, server: RawAnswer, chosen: Settings
) -> None:
    server.answer = answer
    minter = EzidMinter(chosen, pause=0)
    profile = Profile(name="demo", owner=OWNER, collections=(OWNER,), naan="99999", shoulder="fk4")
    assigned = Assignment(a_job(), lambda: True)

    finite(result_or_refusal(lambda: minter.announce(ARK, profile, (("who", "A"),), assigned)))


@given(
    written=st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zs", "Zl", "Zp")), max_size=40),
    where=st.sampled_from(["", "/", "//h/", "?", "#", "http://h/", "../"]),
)
def test_a_location_leads_to_a_url_or_a_refusal_and_keeps_its_escapes(written: str, where: str) -> None:
    location = f"{where}{written}".encode().decode("latin-1")
    response = Response(302, Headers([("Location", location)]), "http://example.org/a/b?c=%2f")

    redirected = result_or_refusal(lambda: redirection(response))

    if isinstance(redirected, str) and where == "/" and not written.startswith("/"):
        target = urlsplit(redirected)
        sent = f"/{written}".partition("#")[0]
        assert unquote_to_bytes(f"{target.path}?{target.query}".rstrip("?")) == unquote_to_bytes(
            sent.rstrip("?")
        )
        assert sent.count("%") <= redirected.count("%")


def test_the_pauses_that_are_left_out_are_those_that_a_client_waits_for() -> None:
    assert LONGEST_PAUSE == 10
