"""Packages are installed from the index that pip is configured for, over TLS that this system trusts."""

import os
import shutil
import ssl
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.requirements import unavailable
from tools import package_index
from tools.checkout import VENV

BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


def test_uv_gets_pips_index_settings() -> None:
    pip = {"index-url": "https://a.example/simple", "find-links": "/wheels", "trusted-host": "a.example"}

    variables = package_index.environment({}, pip, None)

    assert variables["UV_INDEX_URL"] == "https://a.example/simple"
    assert variables["UV_FIND_LINKS"] == "/wheels"
    assert variables["UV_INSECURE_HOST"] == "a.example"


def test_with_a_further_index_a_version_may_come_from_any_as_with_pip() -> None:
    variables = package_index.environment({}, {"extra-index-url": "https://b.example/simple"}, None)

    assert variables["UV_INDEX_STRATEGY"] == "unsafe-best-match"


def test_the_systems_certificates_are_trusted_by_both() -> None:
    variables = package_index.environment({}, {}, BUNDLE)

    assert variables["UV_SYSTEM_CERTS"] == variables["UV_NATIVE_TLS"] == "1"
    assert variables["PIP_CERT"] == str(BUNDLE)


@pytest.mark.parametrize(
    ("current", "pip"),
    [
        ({}, {"cert": "/site.pem"}),
        ({"REQUESTS_CA_BUNDLE": "/site.pem"}, {}),
    ],
)
def test_a_certificate_that_is_configured_for_pip_is_used_by_uv(
    current: dict[str, str], pip: dict[str, str]
) -> None:
    variables = package_index.environment(current, pip, BUNDLE)

    assert variables["SSL_CERT_FILE"] == "/site.pem"
    assert "PIP_CERT" not in variables


def test_a_certificate_that_is_configured_for_openssl_is_used_by_pip() -> None:
    assert package_index.environment({"SSL_CERT_FILE": "/s.pem"}, {}, BUNDLE)["PIP_CERT"] == "/s.pem"


def test_a_variable_that_is_set_already_is_kept() -> None:
    current = {"UV_INDEX_URL": "https://mine.example/simple", "UV_SYSTEM_CERTS": "0"}

    variables = package_index.environment(current, {"index-url": "https://a.example/simple"}, None)

    assert not variables.keys() & current.keys()


def test_the_settings_of_the_first_pip_that_answers_count() -> None:
    answers = {"none": "", "second": "global.index-url='https://a.example/simple'\n", "third": "never asked"}

    found = package_index.pip_settings([["none"], ["second"], ["third"]], lambda command: answers[command[0]])

    assert found == {"index-url": "https://a.example/simple"}


def test_several_lines_of_a_setting_become_one() -> None:
    found = package_index.parse("global.extra-index-url='\\nhttps://a.example\\nhttps://b.example'\n")

    assert found == {"extra-index-url": "https://a.example https://b.example"}


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A package index over TLS on loopback: its URL, and the certificate that nobody trusts by default."""
    openssl = shutil.which("openssl")
    if openssl is None:
        unavailable("openssl is needed to make a certificate: apt-get install openssl")
    certificate, key = tmp_path / "site.pem", tmp_path / "key.pem"
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2", "-nodes")
    usage = ("-addext", "basicConstraints=critical,CA:FALSE")
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", *subject, *usage]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    folder = tmp_path / "index" / "simple" / "tiny"
    folder.mkdir(parents=True)
    _write_wheel(folder / "tiny-1.0-py3-none-any.whl")
    (folder / "index.html").write_text('<a href="tiny-1.0-py3-none-any.whl">tiny-1.0-py3-none-any.whl</a>')

    handler = partial(_Quiet, directory=str(tmp_path / "index"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"https://localhost:{server.server_port}/simple", certificate
        server.shutdown()
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None: ...


def _write_wheel(path: Path) -> None:
    info = "tiny-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny.py", "")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"tiny.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_a_package_comes_from_a_private_index_with_a_certificate_of_its_own(
    index: tuple[str, Path], tmp_path: Path, installer: str
) -> None:
    url, certificate = index
    program = shutil.which(installer, path=os.pathsep.join((str(VENV / "bin"), os.environ["PATH"])))
    if program is None:
        unavailable(f"{installer} is not installed")
    current = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NO_PROXY": "localhost"}
    settings = {"index-url": url, "cert": str(certificate)}
    alone = {**current, "UV_INDEX_URL": url, "PIP_INDEX_URL": url}
    configured = {**current, "PIP_INDEX_URL": url, "PIP_CERT": str(certificate)}
    command = [program, *(("pip",) if installer == "uv" else ()), "install", "--no-cache-dir", "tiny"]
    command = [*command, "--target", tmp_path / "target", *_python(installer)]

    refused = subprocess.run(command, env=alone, capture_output=True, text=True, check=False)
    composed = {**configured, **package_index.environment(current, settings, None)}
    done = subprocess.run(command, env=composed, capture_output=True, text=True, check=False)

    assert refused.returncode != 0
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "target" / "tiny.py").exists()


def _python(installer: str) -> tuple[str, ...]:
    return ("--python", sys.executable) if installer == "uv" else ("--retries", "0", "--quiet")
