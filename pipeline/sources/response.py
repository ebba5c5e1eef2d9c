"""One request to a content source, and the meaning of its answer: bytes, a failure, or a transient fault."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from http import HTTPStatus
from urllib.parse import unquote, urlsplit

from pipeline import causes
from pipeline.file_system import lack_of_host
from pipeline.fixity import LARGEST_FILE
from pipeline.http.service import is_transient, retry_after
from pipeline.http.transfer import IS_TLS, ConnectionFault, NotUnderstood, Response, Unanswered
from pipeline.http.urls import place_of, redact_url
from pipeline.names import NAME_LIMIT, PRODUCER, UnsafeName, quote_name, safe_name, without_unwritable
from pipeline.outcome import NoAnswer, StepFailed, content, transient
from pipeline.states import FailureKind

COMPRESSED = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".z", ".br", ".svgz")
"""Suffixes of files that are themselves compressed, for which some servers set Content-Encoding."""

_CODINGS = frozenset(
    {"gzip", "x-gzip", "compress", "x-compress", "deflate", "br", "zstd", "dcb", "dcz", "exi", "aes128gcm"}
)
"""The content codings in IANA's registry; some servers send a charset, `none` or `binary` instead."""

_PARAMETER = re.compile(r""";\s*([!#$%&'*+.^_`|~\w-]+)\s*=\s*("(?:[^"\\]|\\.)*"?|[^;"]*)""", re.ASCII)
_RANGE = re.compile(r"bytes[ =](\d{1,19})-(\d{1,19})/(\d{1,19}|\*)", re.IGNORECASE | re.ASCII)
_CHARSETS = {"utf-8", "utf8", "iso-8859-1", "windows-1252"}
_TLS_ONLY = re.compile(rb"plain HTTP|HTTP request to an HTTPS|requires TLS", re.IGNORECASE)

_FIRST_BYTE = {"Range": "bytes=0-0"}

_DIGITS = 30
"""Maximum digits of a size, including leading zeros."""
_ENCODED_NAME = 8 * NAME_LIMIT
"""Maximum characters of a name in encoded words, which take quadratic time."""


class PauseRequested(StepFailed):
    """A host asked for a pause: the host that answered, which a redirect may have named."""

    def __init__(self, message: str, seconds: float, host: str, answer: str) -> None:
        super().__init__(FailureKind.TRANSIENT, message, seconds)
        self.seconds = seconds
        self.host = host
        self.answer = answer
        """The host's answer without the URL, so that other submitters may see it."""


def answer_of(url: str, request: Callable[[], Response]) -> Response:
    """The response, with its body unread; the caller closes it. A transient or content failure if none."""
    try:
        return request()
    except ValueError as error:
        message = f"{redact_url(url)} is not a URL that can be fetched: {error}"
        raise content(message).because(causes.URL_INVALID()) from error
    except (ConnectionFault, OSError, RuntimeError) as error:
        raise _failure(url, error) from error


def source_size(url: str, ask: Callable[[Mapping[str, str]], AbstractContextManager[Response]]) -> int | None:
    """Bytes at `url`; None if the source does not state them, a transient or content failure if it refuses.

    `ask` sends one GET with the given headers. The first byte is requested: the answer states the whole size
    and leaves the connection open, whereas some sources refuse, ignore or do not sign for HEAD. If a source
    refuses the range, the whole file is requested and not read.
    """
    with ask(_FIRST_BYTE) as response:
        if response.status == 206:
            for _ in body_chunks(response, url):
                break
            return whole_size(response, url)
        if response.status == 200:
            return content_length(response)
        if response.status == 416 and (size := whole_size(response, url)) is not None:
            return size
        if is_transient(response.status) and response.headers.get("Retry-After"):
            require_status(response, url, 200)
    with ask({}) as response:
        require_status(response, url, 200)
        return content_length(response)


def whole_size(response: Response, url: str) -> int | None:
    """The whole file's size, as stated in the answer to a Range."""
    return stated_size(response.headers.get("Content-Range", "").rpartition("/")[2].strip(), url)


def first_byte(response: Response) -> int | None:
    """The position of the first byte that Content-Range states; the unit is case-insensitive."""
    start = _RANGE.match(response.headers.get("Content-Range", ""))
    return int(start[1]) if start else None


def is_whole(response: Response) -> bool:
    """Whether an unrequested range is the whole file, as some servers answer."""
    stated = _RANGE.match(response.headers.get("Content-Range", ""))
    return stated is not None and int(stated[1]) == 0 and stated[3] == str(int(stated[2]) + 1)


def require_status(response: Response, url: str, *statuses: int) -> None:
    """Raise a transient or content failure unless the answer has one of `statuses`."""
    status = response.status
    if status in statuses:
        return
    phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else quote_name(response.reason)
    answered = f"{redact_url(url)}: the source answered {status} {phrase}".rstrip()
    if status == HTTPStatus.BAD_REQUEST and response.url.startswith("http:") and _says_tls(response):
        cause = causes.TLS_FAILED(host=place_of(response.url))
        raise content(f"{redact_url(url)}: {IS_TLS}").because(cause)
    host = place_of(response.url)
    if is_transient(status):
        seconds = retry_after(response.headers.get("Retry-After"))
        cause = causes.SOURCE_FAILED(host=host, status=status)
        if seconds and host:
            answer = f"{status} {phrase}".rstrip()
            pause = PauseRequested(answered, seconds, host, f"{answer}, Retry-After {seconds:.0f} s")
            raise pause.because(cause)
        raise transient(answered).because(cause)
    raise content(f"{answered}; check the URL, and that it may be read without a login").because(
        causes.SOURCE_ANSWERED(host=host, status=status)
    )


def offered_name(response: Response) -> str:
    """The file name in Content-Disposition (RFC 6266), without folders and forbidden characters; '' if there
    is no usable name.
    """
    if "Content-Disposition" not in response.headers:
        return ""
    extended, quoted = names_stated(response.headers["Content-Disposition"])
    for name in (extended, _decoded(quoted)):
        last = re.split(r"[/\\]", name)[-1]
        with suppress(UnsafeName):
            return safe_name(without_unwritable(last).strip(), PRODUCER)
    return ""


def names_stated(disposition: str) -> tuple[str, str]:
    """The names in `filename*` and `filename` of a Content-Disposition, the better one first; '' for none."""
    stated = {name.lower(): value for name, value in _PARAMETER.findall(f";{disposition}")}
    return _extended(stated.get("filename*", "")), _quoted(stated.get("filename", ""))


def _extended(value: str) -> str:
    """Decode a value with a charset (RFC 8187); '' if it is invalid or its charset is not known."""
    charset, _, text = value.strip('"').partition("'")
    if charset.lower() not in _CHARSETS:
        return ""
    language, quote, name = text.partition("'")
    try:
        return unquote(name if quote else language, charset, "strict")
    except UnicodeDecodeError:
        return ""


def _quoted(value: str) -> str:
    """Decode a token or a quoted string as UTF-8, which most servers send, else as latin-1."""
    text = value.strip()
    if text.startswith('"'):
        text = re.sub(r'\\(["\\])', r"\1", text[1:].removesuffix('"'))
    with suppress(UnicodeError):
        text = text.encode("latin-1").decode("utf-8")
    return text


def _decoded(text: str) -> str:
    """Encoded words as in mail (RFC 2047) are decoded, as in browsers."""
    with suppress(HeaderParseError, LookupError, UnicodeError):
        if text.startswith("=?") and len(text) <= _ENCODED_NAME:
            text = str(make_header(decode_header(text)))
    return text


def _says_tls(response: Response) -> bool:
    """Whether the error page says that the port speaks TLS, as those of nginx, Apache and Go do."""
    try:
        return _TLS_ONLY.search(response.read1()) is not None
    except ConnectionFault:
        return False


def coding_of(response: Response) -> str:
    """The content coding of the body, although none was accepted; '' if none, or if it is not a coding."""
    stated = response.headers.get("Content-Encoding", "").lower().split(",")
    return ", ".join(coding for part in stated if (coding := part.strip()) in _CODINGS)


def refuse_encoded(response: Response, url: str) -> None:
    """Raise a content failure if the body has a content coding, unless the file itself is compressed."""
    if not (coding := coding_of(response)):
        return
    names = (urlsplit(url).path, urlsplit(response.url).path, offered_name(response))
    if not any(name.lower().endswith(COMPRESSED) for name in names):
        raise encoded(url, coding)


def encoded(url: str, coding: str) -> StepFailed:
    return content(
        f"{redact_url(url)}: the source compresses the file for transfer "
        f"(Content-Encoding: {quote_name(coding)}) although asked not to; "
        "declare digest and size of the bytes that are sent, or have the source send the file as it is"
    ).because(causes.SOURCE_UNUSABLE(host=place_of(url)))


def body_chunks(response: Response, url: str) -> Iterator[bytes]:
    """The body as it arrives; a transient failure if it ends early.

    `read1` returns what has arrived, so that a caller of a slow source can still check its attempt.
    """
    while True:
        try:
            chunk = response.read1()
        except ConnectionFault as error:
            raise _failure(url, error) from error
        if not chunk:
            return
        yield chunk


def content_length(response: Response) -> int | None:
    """Content-Length, if it determines the end of the body; a content failure beyond LARGEST_FILE."""
    if "Transfer-Encoding" in response.headers:
        return None
    return stated_size(response.headers.get("Content-Length", ""), response.url)


def stated_size(stated: str, url: str) -> int | None:
    """The size that a header states, None if it states none; a content failure if no file is that large."""
    if not (stated.isascii() and stated.isdigit()):
        return None
    # int() refuses numbers with thousands of digits
    if len(stated) > _DIGITS or int(stated) > LARGEST_FILE:
        raise content(
            f"{redact_url(url)}: the source states a size of {quote_name(stated, 30)} bytes, "
            "which no file has: have the source corrected"
        ).because(causes.SOURCE_UNUSABLE(host=place_of(url)))
    return int(stated)


def _failure(url: str, error: Exception) -> StepFailed:
    """The failure for a fault of a request; raises `error` if it is not such a fault."""
    if (outage := lack_of_host(error)) is not None:
        return outage
    message, host = f"{redact_url(url)}: {error}", place_of(url)
    match error:
        case NotUnderstood():
            return content(message).because(error.cause(host=host))
        case Unanswered():
            return NoAnswer(message, str(error), waited=error.waited).at(host)
        case ConnectionFault():
            return transient(message).because(causes.SOURCE_BROKE(host=host))
        case _:
            raise error
