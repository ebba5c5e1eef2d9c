"""The services that all jobs share; a fault of one of them is no fault of a job."""

from enum import StrEnum


class Service(StrEnum):
    """Codes are stable: they stand in records and reports."""

    RECORD = "record"
    """ZooKeeper."""
    STORAGE = "storage"
    INVENTORY = "inventory"
    WORKING_STORAGE = "working-storage"
    UPLOADS = "uploads"
    """The folder of what depositors uploaded."""
    WORKER_HOST = "worker-host"
    """The machine of a worker: its descriptors, memory and processes."""
    IDENTIFIERS = "identifiers"
    """EZID."""
    MAIL = "mail"
    CALLBACK = "callback"
    """The receiver of a collection's callbacks."""


REMEDIES: dict[str, str] = {
    Service.RECORD: "see to it that ZooKeeper answers and has the record of this deployment",
    Service.STORAGE: "see to it that the storage root is mounted, writable and not full, or that the storage "
    "service answers and accepts the workers' credentials",
    Service.INVENTORY: "see to it that the database answers, accepts the workers' login and can be written",
    Service.WORKING_STORAGE: "see to it that working storage is mounted and writable on every host that runs "
    "workers",
    Service.UPLOADS: "see to it that the folder of uploads (ARKLINE_UPLOADS) is mounted and writable on "
    "every host that runs workers or the web server",
    Service.WORKER_HOST: "see to it that the hosts have free file descriptors (ulimit -n, LimitNOFILE), "
    "memory and processes for their workers",
    Service.IDENTIFIERS: "see to it that EZID answers and accepts the login (ARKLINE_EZID_USER)",
    Service.MAIL: "see to it that the mail server answers and accepts the login (ARKLINE_SMTP_HOST), or that "
    "the outbox can be written",
    Service.CALLBACK: "ask the receiver's operators to see to it that the receiver answers, or fail the jobs",
}
"""What an operator does about an outage of each service."""
