from pathlib import Path

from tests.support.conforming import passed


def test_the_storage_service_keeps_the_promises_of_a_storage_but_those_it_names(tmp_path: Path) -> None:
    """Besides, it lists no objects and keeps no deployment id, as the Protocol allows."""
    assert passed(tmp_path, "-rs", "--arkline-storage=tests.plugins.merritt.conforming:service") > 50


def test_the_inventory_service_keeps_the_promises_of_a_service_beside_the_inventory(tmp_path: Path) -> None:
    assert passed(tmp_path, "--arkline-inventory=tests.plugins.merritt.conforming_inventory:service") == 22
