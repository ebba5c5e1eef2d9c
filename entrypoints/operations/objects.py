"""An object as the inventory describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.errors import UsageRefused

if TYPE_CHECKING:
    from pipeline.inventory.sql import SqlInventory
    from pipeline.services.inventory import InventoryObject


def object_view(inventory: SqlInventory, ark: str) -> InventoryObject:
    found = inventory.describe_object(ark)
    if found is None:
        raise UsageRefused(f"the inventory knows no object {ark}")
    return found
