import re
from contextlib import closing
from ipaddress import ip_address

import pytest

from pipeline.allowed_networks import read_networks
from pipeline.http.session import REDIRECTS, AddressRefused, ContentSession, permitted
from pipeline.http.urls import check_url, redact_url, url_problem
from pipeline.manifests import checkm_row
from pipeline.names import hide_secrets, quote_name
from pipeline.outcome import StepFailed
from pipeline.settings import Settings
from pipeline.states import FailureKind
from tests.servers.http_source import HttpSource
from tests.servers.raw_answer import RawAnswer


def settings(allow: str = "") -> Settings:
    return Settings(allow_networks=allow)


def fetch(url: str, allow: str = "") -> bytes:
    with (
        ContentSession(settings(allow).allow_networks) as session,
        closing(session.request(url)) as response,
    ):
        return response.read()


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f:cb07::1", "64:ff9b::5db8:d70e"])
def test_public_addresses_are_permitted(address: str) -> None:
    assert permitted(ip_address(address), 80, ())


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fc00::1",
        "fec0::1",
        "ff0e::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:7f00:1::",
        "::7f00:1",
        "2001::7f00:1",
        "2001:db8::1",
        "3fff::1",
        "64:ff9b:1::7f00:1",
        "fd00:ec2::254",
        "198.18.0.1",
        "192.0.0.8",
    ],
)
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    assert not permitted(ip_address(address), 80, ())


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3"])
def test_an_allowed_network_permits_its_addresses_however_they_are_written(address: str) -> None:
    assert permitted(ip_address(address), 80, read_networks("10.1.0.0/16"))


def test_an_allowed_network_permits_no_other_address() -> None:
    assert not permitted(ip_address("10.2.0.1"), 80, read_networks("10.1.0.0/16,fd00::/8"))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "0x7f000001", "[::ffff:127.0.0.1]"])
def test_a_name_or_number_of_this_machine_is_refused_naming_host_and_setting(
    source: HttpSource, host: str
) -> None:
    source.put("/a", b"secret")

    with pytest.raises(AddressRefused, match="ARKLINE_ALLOW_NETWORKS") as refusal:
        fetch(f"http://{host}:{source.port}/a")

    assert host.strip("[]") in refusal.value.message
    assert refusal.value.kind is FailureKind.CONTENT
    assert source.count() == 0


@pytest.mark.parametrize(
    ("address", "port", "expected"),
    [
        ("10.1.2.3", 8080, True),
        ("10.1.2.3", 9005, True),
        ("10.1.2.3", 9011, False),
        ("10.1.2.3", 80, False),
        ("::ffff:10.1.2.3", 8080, True),
        ("192.168.7.7", 80, True),
        ("fd00::1", 443, True),
        ("fd00::1", 80, False),
        ("93.184.215.14", 9999, True),
    ],
)
def test_a_network_is_allowed_with_its_ports_only(address: str, port: int, expected: bool) -> None:
    allowed = settings("10.0.0.0/8:8080, 9000-9010, 192.168.7.7, [fd00::/8]:443").allow_networks

    assert permitted(ip_address(address), port, allowed) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8080", "'8080' is no network: write a port after its network"),
        ("10.0.0.0/8,8080", "write the ports after ':', as 10.0.0.0/8:8080"),
        ("10.0.0.0/8:", "'' is no port"),
        ("10.0.0.0/8:0", "'0' is no port"),
        ("10.0.0.0/8:70000", "'70000' is no port"),
        ("10.0.0.0/8:90-80", "'90-80' is no port from 1 to 65535, and no range"),
        ("10.0.0.0/8:http", "'http' is no port"),
        ("10.0.0.1/8", "has host bits set: write a network"),
        ("example.org", "write a network, as"),
    ],
)
def test_a_setting_that_is_no_network_or_port_is_refused_with_the_form(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        settings(text)


def test_the_networks_are_written_as_they_are_read() -> None:
    text = "10.0.0.0/8:8080,9000-9010,192.168.7.7/32,[fd00::/8]:443,fc00::/16"

    assert ",".join(map(str, settings(text).allow_networks)) == text


def test_a_port_that_is_not_allowed_receives_no_request(source: HttpSource) -> None:
    url = source.put("/a", b"bytes")

    assert fetch(url, f"127.0.0.0/8:{source.port}") == b"bytes"
    with pytest.raises(AddressRefused) as refusal:
        fetch(url, "127.0.0.0/8:1-79")
    assert str(source.port) in refusal.value.detail
    assert source.count() == 1


def test_an_allowed_source_is_fetched_and_told_who_asks(source: HttpSource) -> None:
    assert fetch(source.put("/a", b"bytes"), "127.0.0.0/8") == b"bytes"
    assert source.seen("/a")[0].headers["User-Agent"].startswith("arkline/")


def test_a_path_that_is_not_ascii_is_requested_as_utf_8(source: HttpSource) -> None:
    source.put("/m%C3%A4rz", b"bytes")

    assert fetch(source.url("/m\u00e4rz"), "127.0.0.0/8") == b"bytes"
    assert fetch(source.put("/here", redirect="/m%C3%A4rz"), "127.0.0.0/8") == b"bytes"


AS_WRITTEN = (
    "/a%2fb%2Fc/%7e/%c3%a9%C3%A9?sig=a%2bb%2B%3d&x=1+2;3&y=%25&z=100%&q=?/",
    "/a/./b/../c//d/..",
    "/a;v=1/b+c,d:e@f!$&'()*=~-_.|^[]\\",
    "/a?",
    "/?{}`'",
)
"""Targets that no escape may change: each may be part of what a signature was made of."""


@pytest.mark.parametrize("target", AS_WRITTEN)
def test_a_url_and_a_location_are_requested_as_they_were_written(target: str) -> None:
    for kind in ("asked", "absolute", "path"):
        with RawAnswer() as server:
            server.answers = [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"]
            url = f"{server.url}{target}"
            if kind != "asked":
                location = url if kind == "absolute" else target
                server.answers.insert(0, f"HTTP/1.1 302 Found\r\nLocation: {location}\r\n\r\n".encode())
                url = f"{server.url}/here"
            fetch(url, "127.0.0.0/8")

        assert server.asked[-1] == f"GET {target} HTTP/1.1".encode()


@pytest.mark.parametrize(
    ("location", "target"),
    [
        (b"/m\xe4rz \xc3\xa4", b"/m%E4rz%20%C3%A4"),
        (b"?sig=%2f", b"/x/here?sig=%2f"),
        (b"there%2fb?c=%2B", b"/x/there%2fb?c=%2B"),
        (b"../there", b"/there"),
        (b"#top", b"/x/here?a=%2f"),
        (b"/there#/%2f?top", b"/there"),
    ],
)
def test_a_location_is_resolved_and_only_what_no_request_can_carry_is_escaped(
    location: bytes, target: bytes
) -> None:
    with RawAnswer() as server:
        server.answers = [
            b"HTTP/1.1 302 Found\r\nLocation: %s\r\n\r\n" % location,
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        ]
        fetch(f"{server.url}/x/here?a=%2f", "127.0.0.0/8")

    assert server.asked[-1] == b"GET %s HTTP/1.1" % target


def test_a_redirect_is_followed(source: HttpSource) -> None:
    source.put("/there", b"bytes")

    assert fetch(source.put("/here", redirect="/there"), "127.0.0.0/8") == b"bytes"


def test_a_redirect_to_an_address_that_is_not_allowed_is_refused(source: HttpSource) -> None:
    with HttpSource(host="127.0.0.2") as inner:
        target = inner.put("/a", b"secret")
        url = source.put("/here", redirect=target)

        with pytest.raises(AddressRefused, match="has no public address") as refusal:
            fetch(url, "127.0.0.1/32")

        assert inner.count() == 0
        assert "127.0.0.2" in refusal.value.detail
        assert "is at" not in refusal.value.message


def test_a_redirect_to_another_scheme_is_refused(source: HttpSource) -> None:
    url = source.put("/here", redirect="file:///etc/passwd")

    with pytest.raises(
        StepFailed, match=re.escape(f"{url} redirects to 'file:///etc/passwd': content is fetched by http")
    ):
        fetch(url, "127.0.0.0/8")


def test_an_endless_redirect_ends_with_the_number_that_was_followed(source: HttpSource) -> None:
    url = source.put("/loop", redirect="/loop")

    with pytest.raises(StepFailed, match=f"more than {REDIRECTS} times") as failure:
        fetch(url, "127.0.0.0/8")

    assert failure.value.kind is FailureKind.CONTENT
    assert source.count("/loop") == REDIRECTS + 1


def test_a_redirect_to_another_host_does_not_take_the_password_along(source: HttpSource) -> None:
    with HttpSource(host="127.0.0.2") as other:
        source.put("/a", redirect=other.put("/b", b"bytes"))
        fetch(f"http://user:word@127.0.0.1:{source.port}/a", "127.0.0.0/8")

        assert "Authorization" in source.seen("/a")[0].headers
        assert "Authorization" not in other.seen("/b")[0].headers


def test_cookies_are_not_kept(source: HttpSource) -> None:
    url = source.put("/a", b"bytes", headers=(("Set-Cookie", "id=1"),))
    with ContentSession(settings("127.0.0.0/8").allow_networks) as session:
        for _ in range(2):
            with closing(session.request(url)) as response:
                response.read()

    assert "Cookie" not in source.seen("/a")[1].headers


def test_a_proxy_named_in_the_environment_is_not_used(
    source: HttpSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    assert fetch(source.put("/a", b"bytes"), "127.0.0.0/8") == b"bytes"


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("ftp://example.org/a", "http and https only"),
        ("file:///etc/passwd", "http and https only"),
        ("example.org/a", "http and https only"),
        ("http:///a", "names no host"),
        ("http://example.org:99999/", "is not a URL"),
        ("http://[1::/", "is not a URL"),
        ("http://example.org/a b", "%20"),
        ("http://example.org/img#1.tif", "write '#' as %23"),
        ("http://example.org/a\r\nX: y", "%20"),
    ],
)
def test_a_url_that_cannot_be_fetched_is_refused(url: str, complaint: str) -> None:
    with pytest.raises(StepFailed, match=complaint) as refusal:
        check_url(url)

    assert refusal.value.kind is FailureKind.CONTENT


@pytest.mark.parametrize(
    "name",
    [
        "jwt",
        "code",
        "sas",
        "hmac",
        "ticket",
        "PHPSESSION",
        "sig",
        "access_token",
        "api-key",
        "st",
        "sid",
        "otp",
        "Policy",
        "%73ig",
        "user_pin",
        "pwd",
        "PHPSESSID",
        "bearer",
        "access",
        "SAMLResponse",
        "md5",
        "Kennwort",
        "t%256fken",
    ],
)
def test_the_value_of_a_query_that_may_be_a_secret_is_not_shown(name: str) -> None:
    assert redact_url(f"https://example.org/a?{name}=v4lue") == f"https://example.org/a?{name}=..."


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/a;token=v4lue",
        "https://example.org/a;token=v4lue?id=7",
        "https://example.org/a?key%3Dv4lue",
        "https://example.org/a?key%3dv4lue&id=7",
        "https://example.org/a?token%253Dv4lue",
        "https://example.org/a?id=7%26token%3Dv4lue",
        "https://example.org/a?to=https%3A%2F%2Fexample.org%2F%3Ftoken%3Dv4lue",
        "https://[h/x?token=v4lue",
        "https://user:v4lue@[h/x",
        "https://example.org/a?to=https%3A%2F%2Fme%3Av4lue%40example.org%2F",
        "https://example.org/a?token=a;v4lue",
        "https://example.org/a?token=a?v4lue&id=7",
        "ftp://user:v4lue@example.org/a",
        "redis://:p@v4lue@example.org/0",
    ],
)
def test_a_secret_in_another_spelling_is_not_shown(url: str) -> None:
    assert "v4lue" not in redact_url(url)
    assert "v4lue" not in hide_secrets(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://user:v4lue/x@example.org/a",
        "https://user:v4lue?x@example.org/a",
        "https://user:x#v4lue@example.org/a",
        "https://user:v4lue%40example.org/a",
        "https://user:v4lue@h\u2100.example/a",
        "https://user:v4lue@[::g]/a",
        "https:/user:v4lue@example.org/a",
        "https:user:v4lue@example.org/a",
        "https:\\\\user:v4lue@example.org/a",
        "https://example.org:v4lue/a",
        "https://example.org/a?token=a b|v4lue",
    ],
)
def test_the_refusal_of_what_is_no_url_does_not_quote_its_password(url: str) -> None:
    assert "v4lue" not in str(url_problem(url))
    assert "v4lue" not in str(checkm_row.url_problem(url))


def test_a_url_where_a_name_should_be_is_quoted_without_its_secrets() -> None:
    assert quote_name("https://me:v4lue@h/?id=7&sig=v4lue") == "'https://...@h/?id=7&sig=...'"


@pytest.mark.parametrize(
    "url",
    [
        "https://[2001:db8::1]:8443/a@b?accession=1911.12",
        "upload:7138/a@b.tif",
        "https://example.org/~me:a/b",
    ],
)
def test_a_url_without_secrets_is_shown_as_written(url: str) -> None:
    assert redact_url(url) == url


def test_secrets_in_a_text_of_urls_are_hidden_in_linear_time() -> None:
    assert hide_secrets("no url: a=b | c") == "no url: a=b | c"
    for text in (
        "?" * 2_000_000,
        "&a" * 1_000_000,
        "http://" * 300_000,
        "http://" + "a:" * 500_000,
        "?" + "a" * 2_000_000,
        "?a=b" * 400_000,
        "?a=b" + ";c" * 500_000,
    ):
        assert hide_secrets(text) == text


def test_a_url_is_shown_without_its_secrets() -> None:
    url = "https://user:word@example.org/a?id=7&X-Amz-Signature=abc#top"

    assert redact_url(url) == "https://example.org/a?id=7&X-Amz-Signature=..."
