"""Chaos says something about arkline as it is shipped."""

from pathlib import Path

import pytest

from tools.chaos.cluster import run_settings
from tools.chaos.fakes import run_fakes

PLACES = {
    *("zk_hosts", "zk_root", "broker_url", "broker_prefix"),
    *("home", "working_storage", "storage_root", "working_capacity", "profiles", "allow_networks"),
    *("smtp_host", "smtp_port", "ezid_url", "ezid_user", "ezid_password"),
}
"""Addresses, folders and sizes of disks: what every site sets."""


@pytest.mark.parametrize("small_disks", [True, False])
def test_chaos_changes_no_setting_but_addresses_and_folders(tmp_path: Path, small_disks: bool) -> None:
    with run_fakes() as fakes:
        settings = run_settings(tmp_path, "127.0.0.1:1", 2, fakes, small_disks=small_disks)

    assert settings.model_fields_set <= PLACES
