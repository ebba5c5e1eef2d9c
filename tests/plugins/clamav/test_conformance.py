"""The virus scan passes the suite of checks, with a clamd that has the settings of the example."""

from pathlib import Path

from tests.plugins.clamav.conftest import Site
from tests.support.conforming import passed
from tools.checkout import PROJECT

EXAMPLE = PROJECT / "examples" / "clamd" / "clamd.conf"


def settings() -> dict[str, str]:
    lines = [line.split() for line in EXAMPLE.read_text().splitlines() if line and not line.startswith("#")]
    return {name: value for name, value in lines}


def test_it_passes_with_the_settings_of_the_example(site: Site, tmp_path: Path) -> None:
    server = site(**settings())
    suite = "--arkline-check=tests.plugins.clamav.conforming:scan"

    assert passed(tmp_path, suite, environment={"ARKLINE_CLAMD": server.unix}) == 10


def test_the_page_says_what_the_example_sets() -> None:
    page = (PROJECT / "docs" / "operators" / "checks.md").read_text()

    assert settings()
    assert all(f"\n{name} {value} " in page for name, value in settings().items())
