"""The settings, sessions and clients of a command, opened on demand."""

from __future__ import annotations

import getpass
import logging
import socket
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from entrypoints.cli.command_table import load_all
from entrypoints.render import screen
from operations.site import Site, inventory_exists, inventory_file, opened
from pipeline.deployment import check_marker
from pipeline.errors import UsageRefused
from pipeline.inventory import sql
from pipeline.outcome import Service
from pipeline.principal import Interface, Principal, Role
from pipeline.settings import Settings, read_settings
from tasks import logs
from zkstate.care.deployment import read_if_reachable
from zkstate.errors import Unreachable

if TYPE_CHECKING:
    from pipeline.inventory.sql import SqlInventory

CONNECT_TIMEOUT = 3.0
"""Seconds to wait for ZooKeeper's first answer."""


def settings() -> Settings:
    """The settings from the environment; UsageRefused names an invalid variable."""
    return read_settings(Settings)


def site() -> AbstractContextManager[Site]:
    """The site of the environment, for the block; logs are silenced, because the command reports."""
    load_all()  # a session has threads
    quiet_logs()
    return opened(settings(), CONNECT_TIMEOUT)


def principal(by: str = "") -> Principal:
    """The person at this command line: an administrator, because the record itself is open to them."""
    name = by or f"{getpass.getuser()}@{socket.gethostname()}"
    return Principal(name=name, role=Role.ADMIN, interface=Interface.CLI)


def existing_inventory(settings: Settings) -> SqlInventory:
    """The inventory for reading, without ZooKeeper; its file is not created."""
    if not inventory_exists(settings):
        raise UsageRefused(
            f"there is no inventory at {inventory_file(settings)}: set ARKLINE_HOME or "
            "ARKLINE_INVENTORY_URL to the value of the workers; the inventory is created when the first job "
            "is processed"
        )
    return sql.open_inventory(settings.inventory, create=False)


def own_inventory(settings: Settings) -> SqlInventory:
    """The inventory for reading; ServiceDown if the record answers and belongs to another deployment.

    An object must be readable without ZooKeeper, so a record that does not answer only causes a remark.
    """
    load_all()  # a session has threads
    inventory = existing_inventory(settings)
    try:
        recorded = read_if_reachable(settings)
    except Unreachable as problem:
        screen.note(f"storage and inventory were not compared with the record: {problem}")
        return inventory
    if recorded is None:
        screen.note(
            "storage and inventory were not compared with the record: the record in ZooKeeper at "
            f"{settings.zk_hosts}{settings.zk_root} has no deployment id (ARKLINE_ZK_HOSTS, ARKLINE_ZK_ROOT)"
        )
        return inventory
    check_marker(Service.INVENTORY, inventory.place, inventory.read_deployment(), recorded.id)
    return inventory


def quiet_logs() -> None:
    """Hide the log lines of the task layer unless --debug is set: the command reports the result."""
    logs.show_from(logging.DEBUG if logging.getLogger().isEnabledFor(logging.DEBUG) else logging.CRITICAL)
