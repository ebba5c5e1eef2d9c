"""A collection's own list of sources: hosts and networks, with or without a port."""

from ipaddress import ip_address

import pytest

from pipeline.attempt import UNATTENDED
from pipeline.http.session import SourceRefused
from pipeline.outcome import StepFailed
from pipeline.profiles.sources import EVERYWHERE, Sources
from pipeline.settings import Settings
from pipeline.sources.fetch import HttpFetcher
from pipeline.sources.limits import NO_LIMIT
from pipeline.states import FailureKind
from tests.servers.http_source import HttpSource


@pytest.mark.parametrize(
    ("listed", "host", "address", "port", "allowed"),
    [
        ("example.org", "EXAMPLE.org", "198.35.26.96", 80, True),
        ("example.org", "a.example.org", "198.35.26.96", 80, False),
        ("*.example.org", "a.b.example.org", "198.35.26.96", 443, True),
        ("*.example.org", "example.org", "198.35.26.96", 443, False),
        ("*.example.org", "badexample.org", "198.35.26.96", 443, False),
        ("example.org:8443", "example.org", "198.35.26.96", 8443, True),
        ("example.org:8443", "example.org", "198.35.26.96", 443, False),
        ("198.35.26.0/24", "any.org", "198.35.26.96", 80, True),
        ("198.35.26.0/24", "any.org", "198.35.27.96", 80, False),
        ("198.35.26.96", "198.35.26.96", "198.35.26.96", 80, True),
        ("198.35.26.0/24:81", "any.org", "198.35.26.96", 80, False),
        ("2620:0::/32", "any.org", "2620:0:860::1", 80, True),
        ("[2620:0::/32]:443", "any.org", "2620:0:860::1", 443, True),
        ("[2620:0::/32]:443", "any.org", "2620:0:860::1", 80, False),
        ("[2620:0:860::1]", "any.org", "198.35.26.96", 80, False),
    ],
)
def test_a_source_is_a_host_or_a_network_with_or_without_a_port(
    listed: str, host: str, address: str, port: int, *, allowed: bool
) -> None:
    assert Sources.of((listed,)).has(host, ip_address(address), port) is allowed
    assert EVERYWHERE.has(host, ip_address(address), port)


@pytest.mark.parametrize(
    "text",
    ["", "http://example.org", "example.org:0", "example.org:70000", "10.0.0.0/33", "a b", "1.2.3"],
)
def test_anything_else_is_no_source(text: str) -> None:
    with pytest.raises(ValueError, match=r"host|port"):
        Sources.of((text,))


def fetcher_of(*listed: str) -> HttpFetcher:
    settings = Settings(allow_networks="127.0.0.0/8", fetch_tries=1)
    return HttpFetcher(settings).limited_by(NO_LIMIT, lambda: Sources.of(listed))


def refused(fetcher: HttpFetcher, url: str) -> SourceRefused:
    with fetcher, pytest.raises(SourceRefused) as caught:
        fetcher.read(url, 100, UNATTENDED)
    assert caught.value.kind is FailureKind.CONTENT
    return caught.value


def test_a_listed_source_is_fetched_and_no_other_port_gets_a_request(source: HttpSource) -> None:
    url = source.put("/a", b"content")

    for listed in (f"127.0.0.1:{source.port}", "127.0.0.0/8", f"127.0.0.0/8:{source.port}"):
        with fetcher_of("example.org", listed) as fetcher:
            assert fetcher.read(url, 100, UNATTENDED) == b"content"
    requests = source.count()
    refused(fetcher_of(f"127.0.0.1:{source.port + 1}"), url)
    refused(fetcher_of("example.org"), url)

    assert source.count() == requests


def test_a_redirect_away_from_the_sources_is_refused(source: HttpSource) -> None:
    with HttpSource() as other:
        url = source.put("/a", redirect=other.put("/b", b"elsewhere"))

        refused(fetcher_of(f"127.0.0.1:{source.port}"), url)

        assert (source.count(), other.count()) == (1, 0)


def test_a_name_at_an_address_outside_the_listed_networks_is_refused_without_its_address(
    source: HttpSource,
) -> None:
    url = source.put("/a", b"content").replace("127.0.0.1", "localhost")

    failure = refused(fetcher_of("198.35.26.0/24"), url)

    assert "127.0.0.1" not in failure.message
    assert "127.0.0.1" in failure.detail
    assert source.count() == 0


def test_a_connection_of_another_collection_is_not_reused(source: HttpSource) -> None:
    url = source.put("/a", b"content").replace("127.0.0.1", "localhost")
    settings = Settings(allow_networks="127.0.0.0/8")
    with HttpFetcher(settings) as process:
        assert process.limited_by(NO_LIMIT).read(url, 100, UNATTENDED) == b"content"
        narrow = process.limited_by(NO_LIMIT, lambda: Sources.of(("198.35.26.0/24",)))

        with pytest.raises(StepFailed):
            narrow.read(url, 100, UNATTENDED)

        assert source.count() == 1
