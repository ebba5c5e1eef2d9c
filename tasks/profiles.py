"""The profile of a batch: as it was when the batch started, whatever its file says by now."""

from collections.abc import Callable

from pipeline.profiles.profile import Profile, ProfileError, Profiles
from pipeline.profiles.snapshot import restore_profile
from zkstate import batches
from zkstate.session import Session


def profile_of(session: Session, profiles: Profiles, bid: str, name: str) -> Profile:
    """ProfileError if the batch has kept none, as before it starts, and the file is no good either."""
    kept = batches.profile_snapshot(session, bid)
    return profiles.get(name) if kept is None else restore_profile(kept, profiles)


def host_limit(default: int, profile: Callable[[], Profile]) -> int:
    """Connections to one host that the fleet may have while a job of this profile takes another."""
    try:
        own = profile().limits.host_connections
    except ProfileError:
        return default  # the step that needs the profile meets the same fault, and tells it
    return default if own is None else own
