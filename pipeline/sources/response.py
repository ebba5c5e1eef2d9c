"""One request to a source and what its answer means: bytes, a failure, or something that may pass."""

import errno
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPException, IncompleteRead, LineTooLong
from urllib.parse import urlsplit

import requests
import urllib3.exceptions as faults

from pipeline.fixity import PIECE
from pipeline.http.retry import TransientError, is_transient, retry_after
from pipeline.outcome import content
from pipeline.urls import redact_url

IDENTITY = {"Accept-Encoding": "identity"}
"""Bytes are wanted as they are kept, not packed for the way."""


PACKED = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".z", ".br", ".svgz")
"""Names whose files are packed in themselves; some servers say so in Content-Encoding."""

Timeouts = tuple[float, float]
"""Seconds to wait for a connection, and for the next bytes."""


@contextmanager
def ask(
    session: requests.Session,
    method: str,
    url: str,
    timeouts: Timeouts,
    headers: Mapping[str, str] | None = None,
) -> Iterator[requests.Response]:
    """The answer, with its body unread, closed at the end; TransientError or a content failure otherwise."""
    try:
        response = session.request(
            method, url, headers={**IDENTITY, **(headers or {})}, stream=True, timeout=timeouts
        )
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, UnicodeError) as error:
        raise content(f"{redact_url(url)} is not a URL that can be fetched: {error}") from error
    except (requests.RequestException, faults.HTTPError) as error:
        raise _failure(url, error) from error
    with response:
        yield response


def expect(response: requests.Response, url: str, *statuses: int) -> None:
    """Raise unless the answer has one of `statuses`."""
    status = response.status_code
    if status in statuses:
        return
    phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else response.reason
    answered = f"the source answered {status} {phrase}".rstrip()
    if is_transient(status):
        raise TransientError(answered, back_off_requested(response))
    raise content(f"{redact_url(url)}: {answered}; check the URL and that it may be read from here")


def back_off_requested(response: requests.Response) -> float | None:
    """Seconds in which a source that does not answer now wants to be left alone, if it says so."""
    return retry_after(response.headers.get("Retry-After")) if is_transient(response.status_code) else None


def refuse_packed(response: requests.Response, url: str) -> None:
    """Raise a content failure if the body is packed although it was asked for as it is."""
    coding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if coding in ("", "identity") or urlsplit(url).path.lower().endswith(PACKED):
        return
    raise content(
        f"{redact_url(url)}: the source sends it packed (Content-Encoding: {coding}) although asked not to; "
        "declare the digest of the bytes that are sent, or have the source send it as it is"
    )


def pieces(response: requests.Response) -> Iterator[bytes]:
    """The body as it arrives, at most PIECE bytes at a time; TransientError if it ends early.

    `read1` returns what is there: a slow source does not keep the caller from looking up.
    """
    while True:
        try:
            piece = response.raw.read1(PIECE, decode_content=False)
        except (faults.HTTPError, HTTPException, ssl.SSLError) as error:
            raise _failure(response.url, error) from error
        if not piece:
            return
        yield piece


def length(response: requests.Response) -> int | None:
    """Content-Length, if it is told and tells the body's end."""
    stated = response.headers.get("Content-Length", "")
    if "Transfer-Encoding" in response.headers or not (stated.isascii() and stated.isdigit()):
        return None
    return int(stated)


def _failure(url: str, error: Exception) -> Exception:
    """What a fault of the connection means."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return content(
                f"{redact_url(url)}: the source's certificate is not valid: {cause.verify_message}"
            )
        if isinstance(cause, LineTooLong) or (type(cause) is HTTPException and "headers" in str(cause)):
            return content(f"{redact_url(url)}: the source sends headers that are too large ({cause})")
        if isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_NONAME:
            return content(f"{redact_url(url)}: there is no such host; check the URL")
    return TransientError(_reason(error))


def _reason(error: Exception) -> str:
    """The fault in words for people, the innermost cause first."""
    words = {
        errno.ECONNREFUSED: "the connection was refused",
        errno.ECONNRESET: "the connection was broken",
        errno.EHOSTUNREACH: "its host cannot be reached",
        errno.ENETUNREACH: "its network cannot be reached",
    }
    causes = tuple(_causes(error))
    for cause in causes:
        if isinstance(cause, socket.gaierror):
            return f"its host's address cannot be looked up ({cause.strerror})"
        if isinstance(cause, (faults.ConnectTimeoutError, requests.ConnectTimeout)) and not isinstance(
            cause, faults.NewConnectionError
        ):
            return "no connection in time"
        if isinstance(cause, (faults.ReadTimeoutError, requests.ReadTimeout)):
            return "no bytes in time"
        if isinstance(cause, OSError) and cause.errno in words:
            return words[cause.errno]
        if isinstance(cause, IncompleteRead):
            return "the connection ended early"
    return f"the connection failed ({causes[-1]})"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it, outermost first."""
    seen: list[BaseException] = []
    queue: list[object] = [error]
    while queue:
        each = queue.pop(0)
        if not isinstance(each, BaseException) or each in seen:
            continue
        seen.append(each)
        yield each
        queue += [getattr(each, "reason", None), each.__cause__, each.__context__, *each.args]
