"""The pages and the API behind nginx and Apache, with the configurations in `deploy`."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha512
from pathlib import Path

import pytest
import requests
from requests.adapters import HTTPAdapter

from entrypoints.cli.api import Client
from entrypoints.cli.back_off import BackOff
from entrypoints.cli.uploading import SiteUploader
from entrypoints.stack.child import HOST, Command, Process, ask, free_ports
from operations.deposits.local_deposit import plan_deposit
from operations.deposits.local_upload import upload_deposit
from pipeline.errors import UsageRefused
from pipeline.principal import Role
from pipeline.settings import Settings
from tests.support import planting
from tests.support.browser import chromium, visitor
from tests.support.certificates import authority
from tests.support.fleet import PROJECT
from tests.support.processes import await_ready
from tests.support.requirements import program
from tests.support.web import Web, new_token, serving
from zkstate.connection.session import Session

LARGE = 9 << 20
"""Bytes of a file that the page sends in two pieces; nginx accepts 1 MB by default."""


@dataclass(frozen=True)
class Front:
    url: str
    folder: Path
    token: str

    def client(self) -> Client:
        return Client(self.url, self.token)


@dataclass(frozen=True)
class Proxy:
    """A server before `arkline web`. Its texts have the fields folder, host, and the ports plain and port."""

    name: str
    program: str
    package: str
    options: tuple[str, ...]
    main: str
    """Its own configuration, main.conf, which includes ours."""
    replaced: Mapping[str, str]
    """Names and addresses in our configuration -> those of the test."""

    @property
    def shipped(self) -> str:
        return (PROJECT / "deploy" / self.name / "arkline.conf").read_text()


DEBIANS_MODULES = "mpm_event authz_core alias deflate reqtimeout socache_shmcb"
OUR_MODULES = "headers proxy proxy_http ssl"
LOADED = "\n".join(
    f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so"
    for name in f"{DEBIANS_MODULES} {OUR_MODULES}".split()
)

NGINX = Proxy(
    "nginx",
    "nginx",
    "nginx-light",
    ("-e", "{folder}/error.log", "-c", "{folder}/main.conf"),
    """pid {folder}/pid; error_log {folder}/error.log; worker_processes 1; user root; daemon off;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/bodies; proxy_temp_path {folder}/answers; fastcgi_temp_path {folder}/fcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    include {folder}/arkline.conf;
}}
""",
    {
        "listen 80;": "listen {host}:{plain};",
        "listen 443 ssl;": "listen {host}:{port} ssl;",
        "server_name arkline.example.org;": "server_name {host};",
    },
)
APACHE = Proxy(
    "apache",
    "apache2",
    "apache2",
    ("-D", "FOREGROUND", "-f", "{folder}/main.conf"),
    f"""PidFile {{folder}}/pid
ErrorLog {{folder}}/error.log
ServerName {{host}}
Listen {{host}}:{{plain}}
Listen {{host}}:{{port}}
{LOADED}
Include {{folder}}/arkline.conf
""",
    {
        "*:80": "{host}:{plain}",
        "*:443": "{host}:{port}",
        "ServerName arkline.example.org": "ServerName {host}",
    },
)


@contextmanager
def running(proxy: Proxy, folder: Path, behind: str, text: str) -> Iterator[str]:
    """The address of the proxy with our configuration `text`, adapted to the test."""
    plain, port = free_ports(2)
    certificate = authority(folder / "authority").issue("site")
    filled = partial(str.format, folder=folder, host=HOST, plain=plain, port=port)
    replaced = {
        **{old: filled(new) for old, new in proxy.replaced.items()},
        "/etc/ssl/certs/arkline.example.org.pem": str(certificate.certificate),
        "/etc/ssl/private/arkline.example.org.key": str(certificate.key),
        "http://127.0.0.1:8080": behind,
    }
    for old, new in replaced.items():
        assert old in text, old
        text = text.replace(old, new)
    (folder / "arkline.conf").write_text(text)
    (folder / "main.conf").write_text(filled(proxy.main))
    argv = (program(proxy.program, proxy.package), *map(filled, proxy.options))
    ready = partial(ask, plain, b"GET / HTTP/1.0\r\n\r\n", b" 301 ")
    process = Process(Command(proxy.name, argv, folder / "log", ready=ready))
    process.start()
    try:
        await_ready(process, ready)
        yield f"https://{HOST}:{port}"
    finally:
        process.stop()


@pytest.fixture
def web(settings: Settings) -> Iterator[Web]:
    with serving(settings, proxies=HOST) as started:
        yield started


@pytest.fixture(params=[NGINX, APACHE], ids=["nginx", "apache"])
def front(
    request: pytest.FixtureRequest, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Front]:
    with running(request.param, tmp_path, web.url, request.param.shipped) as url:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "authority" / "authority.pem"))
        yield Front(url, tmp_path, new_token(web.context.settings, "dora", Role.DEPOSITOR, ["demo"]))


def test_a_large_file_is_deposited_on_the_page(front: Front) -> None:
    (front.folder / "scan.tif").write_bytes(b"a" * LARGE)
    with chromium() as browser, visitor(browser, front.url) as dora:
        dora.log_in(front.token)
        (cookie,) = dora.page.context.cookies()
        assert (cookie["name"], cookie["secure"]) == ("__Host-arkline", True)
        dora.open("/deposits/new")
        dora.page.get_by_label("Files, a zip or a table").set_input_files(front.folder / "scan.tif")
        dora.page.get_by_label("Title of the object").fill("A scan")
        dora.page.get_by_label("Title of the object").press("Enter")
        dora.page.get_by_role("button", name="Deposit", exact=True).click()
        dora.page.wait_for_url(re.compile("/batches/bid"))
        assert dora.page.url.startswith(front.url)


def test_a_large_file_is_uploaded_by_the_command_line(front: Front) -> None:
    scan = front.folder / "scan.tif"
    scan.write_bytes(b"a" * LARGE)

    payload = upload_deposit(plan_deposit(scan), SiteUploader(front.client(), BackOff(pytest.fail)))

    assert payload.digest.value == sha512(scan.read_bytes()).hexdigest()
    for kept in front.folder.glob("bodies"):
        assert list(kept.iterdir()) == []


def test_a_proxy_that_takes_no_large_body_is_named(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scan.tif").write_bytes(b"a" * LARGE)
    token = new_token(web.context.settings, "dora", Role.DEPOSITOR, ["demo"])
    by_default = NGINX.shipped.replace("client_max_body_size 0;", "")

    with running(NGINX, tmp_path, web.url, by_default) as url:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "authority" / "authority.pem"))
        refusing = SiteUploader(Client(url, token), BackOff(pytest.fail))
        with pytest.raises(UsageRefused, match=re.escape("(nginx: client_max_body_size)")):
            upload_deposit(plan_deposit(tmp_path / "scan.tif"), refusing)


def test_events_arrive_at_once(front: Front, session: Session) -> None:
    headers = {"Authorization": f"Bearer {front.token}", "Accept": "text/event-stream"}
    with requests.get(f"{front.url}/v1/events", headers=headers, stream=True, timeout=30) as stream:
        lines = stream.iter_lines()
        assert any(line == b"event: open" for line in lines)
        job = planting.owned_job(session, "token:dora")
        assert any(job.jid.encode() in line for line in lines)


def test_wrong_tokens_count_for_the_client_and_not_for_the_proxy(front: Front) -> None:
    class From(HTTPAdapter):
        def init_poolmanager(self, *given: object, **options: object) -> None:
            super().init_poolmanager(*given, **options, source_address=("127.0.0.2", 0))  # type: ignore[arg-type]

    with requests.Session() as stranger:
        stranger.mount("https://", From())
        answers = [
            stranger.get(f"{front.url}/v1", headers={"Authorization": f"Bearer wrong{number}"}, timeout=30)
            for number in range(31)
        ]

    assert answers[-1].status_code == 429
    assert "127.0.0.2 has sent 30 wrong tokens" in answers[-1].json()["detail"]
    known = requests.get(f"{front.url}/v1", headers={"Authorization": f"Bearer {front.token}"}, timeout=30)
    assert known.status_code == 200


def test_an_ark_with_encoded_slashes_reaches_the_repository(front: Front) -> None:
    headers = {"Authorization": f"Bearer {front.token}"}
    answer = requests.get(f"{front.url}/v1/objects/ark%3A%2F99999%2Ffk4none", headers=headers, timeout=30)

    assert (answer.status_code, answer.json()["code"]) == (404, "missing")
