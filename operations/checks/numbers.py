"""Compares the counters of the record, and its mark, with what storage and inventory know."""

from collections.abc import Iterator
from functools import partial

from operations.checks.differences import Comparison, Difference, Search, StoreProblem
from pipeline.inventory import reconciling
from pipeline.outcome import Service
from pipeline.profiles.profile import ProfileError, Profiles
from pipeline.settings import Settings
from tasks.stores import level_marks
from zkstate.care import deployment
from zkstate.connection.session import Session
from zkstate.fleet import counters, outages
from zkstate.record import space

MARGIN = 1_000
"""Numbers of jobs and batches that are left out beyond those that a store knows: a number may have been given
later, and shown to a depositor, though neither inventory nor storage has it."""


def shoulders(session: Session, settings: Settings) -> tuple[tuple[str, str], ...]:
    """(NAAN, shoulder) of the collections and of the record's counters; the longest shoulder first."""
    named = set(counters.shoulders(session))
    profiles = Profiles(settings.profiles)
    for name in profiles.names():
        try:
            profile = profiles.get(name)
        except ProfileError:
            continue
        named.add((profile.naan, profile.shoulder))
    return tuple(sorted(named, key=lambda pair: (-len(pair[1]), pair)))


def behind(search: Search) -> Iterator[Comparison]:
    """Counters that are behind; to be called after all versions were read."""
    session, numbers = search.session, search.numbers
    for ark in reconciling.every_minted_ark(search.inventory):
        numbers.note_minted(ark)
    job = max(numbers.job, reconciling.last_job(search.inventory))
    batch = max(numbers.batch, search.inventory.last_batch())
    # the counters are read last: they are ahead of what a running fleet stores
    last_job, last_batch = counters.readable(session, "job"), counters.last_batch(session)
    if last_job is None:  # jobs that are stored nowhere have numbers, too
        job = max(job, counters.highest_job(session))
    if last_job is None or last_job < job:
        repair = partial(counters.raise_to, session, "job", job + MARGIN)
        yield Comparison(_behind("job", last_job, job), repair)
    if last_batch < batch:
        raised = partial(counters.raise_batches, session, MARGIN, above=batch)
        yield Comparison(_behind("batch", last_batch, batch), raised)
    for (naan, shoulder), known in sorted(numbers.minted.items()):
        name = counters.minted(naan, shoulder)
        last = counters.readable(session, name)
        if last is None or last < known:
            yield Comparison(_behind(name, last, known), partial(counters.raise_to, session, name, known))


def reserved(search: Search) -> Iterator[Comparison]:
    """The sum of the reservations of working storage, if it is not that of its nodes."""
    if fault := space.sum_fault(search.session):
        difference = Difference(gap=StoreProblem.RESERVED, value=fault[0], known=fault[1])
        yield Comparison(difference, partial(space.correct_sum, search.session))


def _behind(name: str, value: int | None, known: int) -> Difference:
    return Difference(gap=StoreProblem.NUMBERS, counter=name, value=value, known=known)


def marks(search: Search) -> Iterator[Comparison]:
    """Whether processes take record or inventory for an older copy, and wait; repaired last.

    Workers may have other evidence than the marks that the record is older: the outage says so.
    """
    session = search.session
    marker = search.inventory.read_deployment()
    record = deployment.read(session)  # read last: it is counted up first
    if marker is None or record is None:
        return
    outage = outages.known(session).get(Service.RECORD)
    older = record.mark < marker.mark or (outage is not None and outage.outage.ended is None)
    if older or record.mark > marker.mark + 1:
        difference = Difference(gap=StoreProblem.OUTDATED, value=record.mark, known=marker.mark)
        yield Comparison(difference, partial(_let_continue, search, older=older))


def _let_continue(search: Search, *, older: bool) -> None:
    """`older`: the record lacks numbers that were given after its backup, and that no store may know."""
    session = search.session
    if older:
        counters.raise_to(session, "job", counters.last(session, "job") + MARGIN)
        counters.raise_batches(session, MARGIN)
    level_marks(session, search.inventory)
    outages.end(session, Service.RECORD)
