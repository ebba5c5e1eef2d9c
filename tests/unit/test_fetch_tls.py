"""Sources over TLS: the bytes arrive, and an answer that never ends is left as over TCP."""

import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipeline.attempt import UNATTENDED
from pipeline.http.session import ContentSession
from pipeline.outcome import AttemptOver, StepFailed
from pipeline.profiles.sources import EVERYWHERE
from pipeline.settings import Settings
from pipeline.sources.fetch import HttpFetcher
from pipeline.sources.limits import SourceTimeouts, TooSlow
from pipeline.states import FailureKind
from tests.servers.hostile_source import HostileSource
from tests.support.fetching import BODY, DownloadFactory, assert_downloaded, over_after, sha256
from tests.support.requirements import unavailable


class _Quiet(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Print nothing."""


QUICK = SourceTimeouts(first_pause=0.01)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1, and its key in the same file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        unavailable("openssl is needed to make a certificate: apt-get install openssl")
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    subject = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-nodes")
    output = ("-keyout", str(path), "-out", f"{path}.crt")
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", *subject, *output]
    subprocess.run(command, check=True, capture_output=True)
    with path.open("ab") as both:
        both.write(Path(f"{path}.crt").read_bytes())
    return path


@pytest.fixture
def context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def site(context: ssl.SSLContext, tmp_path: Path) -> Iterator[str]:
    """The URL of BODY over TLS."""
    (tmp_path / "a.bin").write_bytes(BODY)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(tmp_path))) as server:
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"https://127.0.0.1:{server.server_port}/a.bin"
        server.shutdown()
        thread.join()


def trusting(certificate: Path, timeouts: SourceTimeouts = QUICK) -> HttpFetcher:
    settings = Settings(allow_networks="127.0.0.0/8", fetch_tries=1)
    session = ContentSession(settings.allow_networks, certificates=str(certificate))
    return HttpFetcher(settings, timeouts, sessions={EVERYWHERE: session})


def test_a_file_arrives_over_tls(site: str, certificate: Path, a_download: DownloadFactory) -> None:
    with trusting(certificate) as fetcher:
        assert fetcher.size(site) == len(BODY)
        fetcher.download(a_download(site, sha256(BODY)), UNATTENDED)

    assert_downloaded(a_download)


def test_http_to_a_port_that_speaks_https_is_refused_at_once_in_words(
    site: str, certificate: Path, a_download: DownloadFactory
) -> None:
    with (
        trusting(certificate) as fetcher,
        pytest.raises(StepFailed, match="write https:// instead of http://") as refusal,
    ):
        fetcher.download(a_download(site.replace("https", "http")), UNATTENDED)

    assert refusal.value.kind is FailureKind.CONTENT


def test_a_source_whose_ciphers_are_all_unsafe_is_refused_at_once(
    site: str, context: ssl.SSLContext, certificate: Path, a_download: DownloadFactory
) -> None:
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ADH@SECLEVEL=0")
    with (
        trusting(certificate) as fetcher,
        pytest.raises(StepFailed, match="no https that is still safe") as refusal,
    ):
        fetcher.download(a_download(site), UNATTENDED)

    assert refusal.value.kind is FailureKind.CONTENT


def test_a_certificate_that_nobody_trusts_is_the_depositors(site: str, a_download: DownloadFactory) -> None:
    settings = Settings(allow_networks="127.0.0.0/8", fetch_tries=1)
    with (
        HttpFetcher(settings) as fetcher,
        pytest.raises(StepFailed, match="certificate is not valid") as refusal,
    ):
        fetcher.download(a_download(site), UNATTENDED)

    assert refusal.value.kind is FailureKind.CONTENT


@pytest.mark.parametrize("variant", ["endless-header", "endless-trailer"])
def test_an_answer_over_tls_that_never_ends_is_given_up(
    context: ssl.SSLContext, certificate: Path, a_download: DownloadFactory, variant: str
) -> None:
    with (
        HostileSource(variant, 0.05, context) as source,
        trusting(certificate, SourceTimeouts(headers=0.4, window=0.4)) as fetcher,
        pytest.raises(TooSlow),
    ):
        fetcher.download(a_download(source.url), UNATTENDED)


@pytest.mark.parametrize("variant", ["no-answer", "nothing-after-the-headers"])
def test_an_attempt_that_is_over_leaves_a_silent_source_over_tls(
    context: ssl.SSLContext, certificate: Path, a_download: DownloadFactory, variant: str
) -> None:
    over = threading.Event()

    with HostileSource(variant, 60.0, context) as source, trusting(certificate) as fetcher:
        threading.Timer(0.5, over.set).start()
        with pytest.raises(AttemptOver):
            fetcher.download(a_download(source.url), over_after(over))
        source.await_left(timeout=20)
