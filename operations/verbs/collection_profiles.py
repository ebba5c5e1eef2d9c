"""Collection profiles for operators: show them, and renew the snapshot of a batch."""

from typing import Any

from pydantic import Field

from operations.jobs.allowed_verbs import check_seen
from operations.site import Site
from operations.verbs.verbs import retry_stale
from operations.visibility import recorded_batch
from pipeline.principal import Principal, Role
from pipeline.profiles.profile import Profile, ProfileError, Profiles, read_profile
from pipeline.profiles.snapshot import profile_changes, take_snapshot
from pipeline.records import Batch, Record
from pipeline.states import BATCH, BatchState, IllegalTransition
from zkstate.record import batches


class ProfileRenewal(Record):
    """The renewed profile of a batch; `changes`: field -> value before and value now."""

    bid: str
    profile: str
    changes: dict[str, tuple[Any, Any]]
    dry_run: bool = False


def renew(
    site: Site,
    principal: Principal,
    bid: str,
    *,
    reason: str = "",
    version: int | None = None,
    dry_run: bool = False,
) -> ProfileRenewal:
    """Renew the batch's snapshot from the current profile file, for its remaining jobs."""

    def attempt() -> ProfileRenewal:
        batch = recorded_batch(site, principal, bid)
        principal.require(Role.OPERATOR, f"renew the profile of {bid}", batch.profile_name)
        check_seen(batch, version)
        _check(batch)
        profile = site.profiles.get(batch.profile_name)
        changed = profile_changes(batches.profile_snapshot(site.session, bid), profile)
        if changed and not dry_run:
            by, via = principal.name, principal.interface
            snapshot = take_snapshot(profile, by, reason, via, principal.request_id)
            batches.renew_profile(site.session, batch, snapshot)
        return ProfileRenewal(bid=bid, profile=profile.name, changes=changed, dry_run=dry_run)

    return retry_stale(bid, attempt)


def _check(batch: Batch) -> None:
    state = batch.status.status
    if not BATCH.facts[state].split:
        raise IllegalTransition(
            f"{batch.bid} has not started: it will use the profile as the file is when it starts"
        )
    if state in (BatchState.COMPLETED, BatchState.DELETED):
        raise IllegalTransition(f"{batch.bid} is {state}: it has no job left that would use a profile")


class ProfileLine(Record):
    """A profile in a list; one that cannot be used has `faults` and its name alone."""

    name: str
    file: str
    description: str = ""
    collections: tuple[str, ...] = ()
    ark_prefixes: tuple[str, ...] = ()
    """The beginnings of the ARKs of the collection's new objects."""
    new_versions: bool = False
    """Whether a deposit may add a version to an object without saying so."""
    limits: dict[str, int] = Field(default_factory=dict)
    """Those of the profile; the settings have the others."""
    review: bool = False
    """Whether an operator approves each deposit before it is stored."""
    checks: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    """The hosts that content may come from; empty: every host."""
    faults: tuple[str, ...] = ()


class ProfileLines(Record):
    profiles: tuple[ProfileLine, ...]


class ProfileView(Record):
    """A profile with all its values, also those that its file leaves out; no secret."""

    file: str
    values: dict[str, object]
    set_in_file: tuple[str, ...]
    """The fields that the file sets."""
    ignored: tuple[str, ...]
    """Warnings about fields that arkline does not use."""


def listed(profiles: Profiles, principal: Principal | None = None) -> tuple[ProfileLine, ...]:
    """The profiles that the principal may see, without this server's paths; all without a principal."""
    lines = (profile_line(profiles, name) for name in profiles.names())
    if principal is None:
        return tuple(lines)
    allowed = principal.collections
    own = (line for line in lines if allowed is None or line.name in allowed)
    return tuple(line.model_copy(update={"file": ""}) for line in own)


def shown(profiles: Profiles, name: str) -> ProfileView:
    """The profile; UnknownProfile or ProfileError if it does not exist or cannot be used."""
    path = profiles.file(name)
    profile, ignored = read_profile(path)
    return ProfileView(
        file=str(path),
        values=profile.public(),
        set_in_file=tuple(field for field in Profile.model_fields if field in profile.model_fields_set),
        ignored=ignored,
    )


def profile_line(profiles: Profiles, name: str) -> ProfileLine:
    try:
        path = profiles.file(name)
    except ProfileError as error:
        return ProfileLine(name=name, file="", faults=error.faults)
    try:
        profile, _ = read_profile(path)
    except ProfileError as error:
        return ProfileLine(name=name, file=str(path), faults=error.faults)
    return ProfileLine(
        name=name,
        file=str(path),
        description=profile.description,
        collections=profile.collections,
        ark_prefixes=profile.ark_prefixes,
        new_versions=profile.new_versions,
        limits=profile.limits.model_dump(exclude_none=True),
        review=profile.review,
        checks=tuple(rule.name for rule in profile.checks),
        sources=profile.sources,
    )
