"""Gives the id of a deployment to a store that is lost and starts empty, or that an earlier release made."""

from pipeline.deployment import Deployment, Stores, foreign, write_missing

OLDER = 2
"""A store whose mark is behind by so much is an older copy."""


def join_missing(stores: Stores) -> None:
    """Give the deployment's id to every store without one; a store that does not exist is created, empty.

    For an operator who knows that a lost store will not come back, or that an older store belongs here. An
    empty inventory is marked as an older copy, which is not used before its entries are made from storage.
    ServiceDown if two stores belong to different deployments.
    """
    marked = [
        (store, marker) for store in (*stores.kept, stores.record) if (marker := store.read_deployment())
    ]
    deployment = max((marker for _, marker in marked), key=lambda marker: marker.mark, default=Deployment())
    for store, marker in marked:
        if marker.id != deployment.id:
            raise foreign(store.service, store.place, marker, deployment.id)
    stores.record.raise_last_job(stores.inventory.last_job())
    newer = deployment
    if _lacks_entries(stores):
        newer = deployment.model_copy(update={"mark": deployment.mark + OLDER})
        stores.record.raise_mark(newer.mark)  # first: a crash must not leave an empty inventory with its mark
        stores.inventory.write_deployment(deployment)
    write_missing(stores, newer)


def _lacks_entries(stores: Stores) -> bool:
    """Whether the inventory is to get an id, and is empty although objects were stored."""
    if stores.inventory.read_deployment() is not None or not stores.inventory.is_empty():
        return False
    stored = stores.storage is not None and not stores.storage.is_empty()
    return stored or stores.record.has_stored_jobs()
