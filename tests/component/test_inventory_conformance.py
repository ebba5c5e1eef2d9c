"""The inventory passes the suite in both databases and with a site's service; wrong services do not."""

from pathlib import Path

import pytest

from tests.servers import postgresql
from tests.support.conforming import passed
from tests.support.conforming_inventories import POSTGRESQL

SUBJECTS = "--arkline-inventory=tests.support.conforming_inventories"


def test_the_inventory_with_a_service_of_the_site_passes(tmp_path: Path) -> None:
    assert passed(tmp_path, f"{SUBJECTS}:catalogue") == 22


def test_the_inventory_alone_passes_what_needs_no_service(tmp_path: Path) -> None:
    assert passed(tmp_path, f"{SUBJECTS}:of_sqlite", "-rs") == 16


def test_the_inventory_in_postgresql_passes_what_needs_no_service(
    tmp_path: Path, postgresql_server: postgresql.Server
) -> None:
    environment = {POSTGRESQL: postgresql_server.dsn("postgres")}
    assert passed(tmp_path, f"{SUBJECTS}:of_postgresql", "-rs", environment=environment) == 16


@pytest.mark.parametrize(
    ("subject", "test"),
    [
        ("forgetful", "test_a_recorded_version_is_known_to_the_service"),
        ("overwriting", "test_ids_that_another_system_enters_at_the_same_moment"),
        ("halting", "test_ids_that_another_system_enters_at_the_same_moment"),
        ("folding", "test_an_id_is_kept_letter_by_letter"),
        ("hasty", "test_jobs_wait_for_a_service_that_is_away"),
        ("counting", "test_recording_a_version_again_changes_nothing"),
    ],
)
def test_a_service_that_breaks_a_promise_fails(tmp_path: Path, subject: str, test: str) -> None:
    with pytest.raises(AssertionError, match=f"_ {test}"):
        passed(tmp_path, f"{SUBJECTS}:{subject}", "-k", test)
