"""The profile of a batch, as it was when the batch started; later changes of the file do not count."""

from collections.abc import Callable

from pipeline.profiles.profile import Profile, ProfileError, Profiles
from pipeline.profiles.snapshot import public_profile, with_secrets
from zkstate.connection.session import Session
from zkstate.record import batches


def profile_of(session: Session, profiles: Profiles, bid: str, name: str) -> Profile:
    """ProfileError if the batch has no snapshot, because it has not started, and the file is invalid."""
    return with_current_secrets(public_profile_of(session, bid), profiles, name)


def public_profile_of(session: Session, bid: str) -> Profile | None:
    """Without secrets; None if the batch has not started."""
    return batches.profile_of_jobs(session, bid, public_profile)


def with_current_secrets(public: Profile | None, profiles: Profiles, name: str) -> Profile:
    """The profile for an attempt that begins now: a secret is replaced while a job is in progress."""
    return profiles.get(name) if public is None else with_secrets(public, profiles)


def host_limit(default: int, profile: Callable[[], Profile]) -> int:
    """The fleet's limit of connections to one host, for a job of this profile."""
    try:
        own = profile().limits.host_connections
    except ProfileError:
        return default  # the step that needs the profile meets the same fault, and reports it
    return default if own is None else own
