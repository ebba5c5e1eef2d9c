"""The login of a stack on one machine: an operator's token, kept in the stack's folder between two starts."""

import getpass
import secrets
import socket
from pathlib import Path

from entrypoints.stack.home import write_private
from operations.tokens import Authenticator, InvalidToken, create_token
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.principal import Interface, Principal, Role
from pipeline.settings import Settings


def kept_token(home: Path, settings: Settings) -> str:
    """The token in this folder if the inventory knows it; else a new one."""
    path, inventory = home / "token", open_inventory(settings.inventory)
    if path.exists() and _is_valid(token := path.read_text().strip(), inventory):
        return token
    person = f"{getpass.getuser()}@{socket.gethostname()}"
    creator = Principal(name=person, role=Role.ADMIN, interface=Interface.CLI)
    # a name is never used twice
    created = create_token(inventory, creator, f"stack-{secrets.token_hex(4)}", Role.OPERATOR)
    write_private(path, created.token + "\n")
    return created.token


def _is_valid(token: str, inventory: SqlInventory) -> bool:
    try:
        Authenticator(lambda: inventory).authenticate(token, Interface.CLI)
    except InvalidToken:
        return False
    return True
