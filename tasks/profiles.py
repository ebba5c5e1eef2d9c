"""The profile of a batch, as it was when the batch started; later changes of the file do not count."""

from collections.abc import Callable

from pipeline.profiles.profile import Profile, ProfileError, Profiles
from pipeline.profiles.snapshot import ProfileSnapshot, restore_profile
from zkstate import batches
from zkstate.session import Session


def profile_of(session: Session, profiles: Profiles, bid: str, name: str) -> Profile:
    """ProfileError if the batch has no snapshot, because it has not started, and the file is invalid."""
    return restored(batches.profile_snapshot(session, bid), profiles, name)


def restored(snapshot: ProfileSnapshot | None, profiles: Profiles, name: str) -> Profile:
    """As `profile_of`, for a snapshot that was read before."""
    return profiles.get(name) if snapshot is None else restore_profile(snapshot, profiles)


def host_limit(default: int, profile: Callable[[], Profile]) -> int:
    """The fleet's limit of connections to one host, for a job of this profile."""
    try:
        own = profile().limits.host_connections
    except ProfileError:
        return default  # the step that needs the profile meets the same fault, and reports it
    return default if own is None else own
