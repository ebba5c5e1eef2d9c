"""The virus scan passes the suite of checks, with a clamd that has the settings of the example."""

from pathlib import Path

from pipeline.checks import CheckVerdict
from plugins.clamav.samples import eicar
from tests.plugins.clamav.conftest import Site, file, scanned
from tests.support.conforming import passed
from tools.checkout import PROJECT

EXAMPLE = PROJECT / "examples" / "clamd" / "clamd.conf"


CONTAINER = PROJECT / "deploy" / "helm" / "arkline" / "files" / "clamav"
"""Of docker-compose.yml and the chart."""


def settings(path: Path = EXAMPLE) -> dict[str, str]:
    lines = [line.split() for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {name: value for name, value in lines}


def test_it_passes_with_the_settings_of_the_example(site: Site, tmp_path: Path) -> None:
    server = site(**settings())
    suite = "--arkline-check=tests.plugins.clamav.conforming:scan"

    assert passed(tmp_path, suite, environment={"ARKLINE_CLAMD": server.unix}) == 10


def test_clamd_in_a_container_has_the_limits_of_the_example_and_the_database_that_freshclam_renews(
    site: Site, tmp_path: Path
) -> None:
    own = settings(CONTAINER / "clamd.conf")
    renewed = settings(CONTAINER / "freshclam.conf")

    assert settings().items() <= own.items()
    assert own["DatabaseDirectory"] == renewed["DatabaseDirectory"] == "/var/lib/clamav"
    places = ("DatabaseDirectory", "TemporaryDirectory", "TCPSocket", "LocalSocket")
    server = site(**{name: value for name, value in own.items() if name not in places})
    (finding,) = scanned(server.tcp, file(tmp_path, eicar()))
    assert finding.verdict is CheckVerdict.FOUND


def test_the_page_says_what_the_example_sets() -> None:
    page = (PROJECT / "docs" / "operators" / "checks.md").read_text()

    assert settings()
    assert all(f"\n{name} {value} " in page for name, value in settings().items())
