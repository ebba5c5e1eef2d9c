"""Guests written from docs/developers/guests.md alone, in an environment that has only the wheel.

The files of the guest are those that the page shows: a class, a program, a storage and a minter.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from entrypoints.stack.stack import SAMPLE_PROFILES
from pipeline.errors import ServiceUnreachable
from tests.support.guest_page import PROGRAM, shown_checks, shown_files
from tests.support.requirements import unavailable
from tools.dev import wheel
from tools.dev.wheel import CheckFailed, Installed

INSTALLED_AT = f"/usr/local/bin/{PROGRAM}"
"""Where the page has its program."""

KEY = "Name: a key\n-----BEGIN RSA PRIVATE" + " KEY-----\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel with its suites, and the guest, installed; no file of it is from the checkout."""
    try:
        wheel.find_uv()
    except ServiceUnreachable as error:
        unavailable(error)
    built = wheel.build(tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("source"))
    installed = wheel.install(built, tmp_path_factory.mktemp("site"), "conformance")
    guest = installed.folder / "guest"
    for name, text in shown_files().items():
        (guest / name).parent.mkdir(parents=True, exist_ok=True)
        (guest / name).write_text(text)
    (guest / PROGRAM).chmod(0o755)
    return wheel.install_guest(installed, guest)


def test_the_storage_passes_the_suite_of_the_wheel(site: Installed) -> None:
    assert _passed(site, "--arkline-storage=conforming:place") > 50


@pytest.mark.parametrize("subject", ["private_keys", "has_a_name"])
def test_a_class_and_a_program_pass_the_suite_of_the_wheel(site: Installed, subject: str) -> None:
    assert _passed(site, f"--arkline-check=conforming_checks:{subject}") == 10


def test_the_minter_passes_the_suite_of_the_wheel(site: Installed) -> None:
    assert _passed(site, "--arkline-minter=conforming_minters:resolver") == 16


def _passed(site: Installed, suite: str) -> int:
    said = site.run("pytest", "-q", "-p", "no:cacheprovider", suite)
    assert "failed" not in said
    return int(said.rsplit(" passed", 1)[0].split()[-1])


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("library") / "tape"


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("resolver") / "names"


@pytest.fixture(scope="module")
def user(
    site: Installed, tape: Path, names: Path, zookeeper: object, redis_server: object
) -> Iterator[Installed]:
    """A user of a stack whose profile has the checks of the page, and whose objects are on tape."""
    del zookeeper, redis_server  # skipped where these cannot run
    profiles = site.folder / "profiles"
    profiles.mkdir()
    checks = shown_checks()
    assert INSTALLED_AT in checks
    sample = (SAMPLE_PROFILES / "demo.yaml").read_text()
    (profiles / "demo.yaml").write_text(sample + checks.replace(INSTALLED_AT, str(site.folder / PROGRAM)))
    names.mkdir()
    given = {
        "ARKLINE_TAPE_ROOT": str(tape),
        "ARKLINE_RESOLVER_FOLDER": str(names),
        "ARKLINE_PROFILES": str(profiles),
    }
    with wheel.standalone(site, **given) as user:
        yield user


def test_a_deposit_is_checked_by_a_class_and_a_program_registered_and_kept_by_the_storage(
    user: Installed, tape: Path, names: Path
) -> None:
    named = _deposited(user, "named.txt", "Name: a ferry\n")
    nameless = _deposited(user, "nameless.txt", "a ferry\n")

    assert {path.name for path in tape.rglob("*.txt") if "producer" in path.parts} == {
        "named.txt",
        "nameless.txt",
    }
    assert not list((user.folder / "home" / "ocfl").rglob("*.txt")), (
        "nothing is where arkline stores by itself"
    )
    assert {file.name for file in names.iterdir()} == {
        f"{quote(ark, safe='')}.json" for ark in (named, nameless)
    }
    assert _objects(user, "private-keys", "fine") == {named, nameless}
    assert _objects(user, "has-a-name", "fine") == {named}
    assert _objects(user, "has-a-name", "found") == {nameless}
    (version,) = json.loads(user.run("arkline", "object", nameless, "--json"))["versions"]
    (run,) = (run for run in version["checks"] if run["check"] == "has-a-name")
    assert [finding["code"] for finding in run["findings"]] == ["no-name"]


def test_what_the_class_finds_is_not_stored(user: Installed, tape: Path) -> None:
    with pytest.raises(CheckFailed, match="the file contains a private key"):
        _deposited(user, "key.txt", KEY)

    assert not list(tape.rglob("key.txt"))


def _deposited(user: Installed, name: str, text: str) -> str:
    """Deposit a file; the ARK of its object, CheckFailed if the job failed."""
    (user.folder / name).write_text(text)
    said = user.run("arkline", "submit", "--profile=demo", name, "--wait", "--json")
    (deposited,) = json.loads(said)["objects"]
    return str(deposited["ark"])


def _objects(user: Installed, check: str, verdict: str) -> set[str]:
    said = user.run("arkline", "objects", "--check", check, "--verdict", verdict, "--json")
    return {entry["ark"] for entry in json.loads(said)["objects"]}
