"""Why a source with a valid URL is not requested: its address, or the profile of the collection."""

from pipeline.http.networks import Address
from pipeline.outcome import StepFailed
from pipeline.states import FailureKind


class AddressRefused(StepFailed):
    """The source is at an address that content may not come from.

    The message does not tell the address: depositors read it, and could map a network that is not theirs.
    """

    def __init__(self, host: str, address: Address, port: int) -> None:
        super().__init__(
            FailureKind.CONTENT,
            f"{host} has no public address: content is not fetched from there; our staff may allow its "
            "network by the setting ARKLINE_ALLOW_NETWORKS",
        )
        self.detail = f"{host} is at {address}, port {port}"


class SourceRefused(StepFailed):
    """The host is not one of the sources of the collection; which those are is for the log."""

    def __init__(self, host: str, port: int, place: str = "") -> None:
        super().__init__(
            FailureKind.CONTENT,
            f"content of this collection is not fetched from {host}: give a URL of its sources, or ask our "
            "staff to list the host in its profile",
        )
        self.detail = f"{place or host}, port {port}, is none of the sources of the profile"
