"""A minter: one ARK for a job and one job for an ARK, whatever dies, is away or is repeated."""

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from pipeline import names
from pipeline.identifiers import noid
from pipeline.outcome import AttemptOver, Service, ServiceDown, StepFailed
from pipeline.records import Identifiers
from pipeline.states import FailureKind
from plugins.conformance.deaths import End
from plugins.conformance.minting import ERC, Minting, a_job

MOST_EFFECTS = 200


class Refused(Exception):
    """The ARK is claimed for something else."""


def test_an_ark_is_spelled_as_arkline_spells_it_and_belongs_to_the_collection(minting: Minting) -> None:
    ark = minting.mint(1)

    assert names.spellings(ark) == (ark,)
    assert ark.startswith(minting.given.profile.ark_prefixes)
    if minting.given.check_character:
        assert ark[-1] == noid.check_character(ark.removeprefix("ark:/")[:-1])


def test_the_same_job_gets_the_same_ark_also_after_a_restart(minting: Minting) -> None:
    minter = minting.given.open()
    ark = minting.mint(1, minter)
    numbers = minting.record.counters.copy()

    assert minting.mint(1, minter) == minting.mint(1) == minting.ark_of(1) == ark
    assert minting.record.counters == numbers


def test_many_jobs_at_once_get_different_arks_from_several_processes(minting: Minting) -> None:
    minters = [minting.given.open() for _ in range(4)]

    with ThreadPoolExecutor(8) as threads:
        arks = list(threads.map(lambda number: minting.mint(number, minters[number % 4]), range(1, 49)))

    assert len(set(arks)) == 48
    assert arks == [minting.ark_of(number) for number in range(1, 49)]


def test_the_identifiers_of_the_job_are_written_with_its_ark(minting: Minting) -> None:
    ark = minting.mint(1, identifiers=Identifiers(local_id=("loc-1",), assigned=True))

    expected = Identifiers(primary_id=ark, local_id=("loc-1",), assigned=True)
    assert minting.record.of(a_job(1)) == expected


def test_an_ark_is_claimed_once_it_is_in_the_record_and_before_anybody_knows_it(minting: Minting) -> None:
    claimed = []

    def claim(ark: str) -> None:
        assert minting.ark_of(1) == ark
        assert minting.given.registry is None or minting.given.registry.known(ark) is None
        claimed.append(ark)

    assert claimed == [minting.mint(1, claim=claim)] * len(claimed)
    assert claimed


def test_an_ark_whose_claim_is_refused_is_registered_nowhere(minting: Minting) -> None:
    def claim(ark: str) -> None:
        raise Refused(ark)

    with pytest.raises(Refused) as refused:
        minting.mint(1, claim=claim)

    assert minting.registry.known(str(refused.value)) is None


def test_arks_that_are_known_are_skipped_if_the_record_has_lost_its_counter(minting: Minting) -> None:
    taken = {minting.mint(number) for number in (1, 2, 3)}
    minting.record.counters.clear()

    def known(arks: Sequence[str]) -> Collection[str]:
        return taken & set(arks)

    assert minting.mint(4, known=known) not in taken


def test_an_ark_that_is_registered_for_another_job_is_not_given_again(minting: Minting) -> None:
    registry, first = minting.registry, minting.mint(1)
    minting.announce(first, 1)
    before = registry.known(first)
    minting.record.counters.clear()

    with suppress(StepFailed):  # it may be refused, or get another ARK
        minting.announce(minting.mint(2), 2)
        assert minting.ark_of(2) != first

    assert registry.known(first) == before


def test_an_attempt_that_is_over_takes_no_number(minting: Minting) -> None:
    minting.record.over.add(a_job(1).jid)

    with pytest.raises(AttemptOver):
        minting.mint(1, claim=pytest.fail)

    assert not minting.record.counters
    assert minting.ark_of(1) is None


def test_an_announced_ark_is_in_the_registry_and_announcing_it_again_changes_nothing(
    minting: Minting,
) -> None:
    ark = minting.mint(1)
    reserved = minting.registry.known(ark)

    minting.announce(ark, 1)
    known = minting.registry.known(ark)
    minting.announce(ark, 1)

    assert known not in (None, reserved)
    assert minting.registry.known(ark) == known


def test_nothing_is_announced_by_an_attempt_that_is_over(minting: Minting) -> None:
    ark = minting.mint(1)
    before = minting.registry.known(ark)

    def last_check() -> None:
        raise AttemptOver("an operator failed the job")

    with pytest.raises(AttemptOver):
        minting.announce(ark, 1, last_check=last_check)

    assert minting.registry.known(ark) == before


def test_an_ark_that_a_depositor_gave_is_not_registered(minting: Minting) -> None:
    profile = minting.given.profile
    given = (f"ark:/{profile.naan}/{profile.shoulder}given", "ark:/12345/given")

    for ark in given:
        minting.given.open().announce(ark, profile, ERC)

    assert [minting.registry.known(ark) for ark in given] == [None, None]


def test_a_process_that_dies_before_any_of_its_effects_leaves_one_ark(minting: Minting) -> None:
    ended, number = End.DIED, 0
    while ended is not End.SURVIVED:
        number += 1
        assert number < MOST_EFFECTS
        ended = minting.dies_before(number, number)
        assert ended is not End.FAILED, "the minter failed: its error is in the output"
        left = minting.ark_of(number)
        ark = minting.mint(number)
        minting.announce(ark, number)

        assert left in (None, ark)
        assert minting.given.registry is None or minting.given.registry.known(ark) is not None
    assert len({minting.ark_of(job) for job in range(1, number + 1)}) == number


def test_arkline_knows_whether_there_is_a_service_to_wait_for(minting: Minting) -> None:
    assert minting.given.open().uses_service(minting.given.profile) is (minting.given.registry is not None)


def test_jobs_wait_for_a_registry_that_is_away_and_continue_with_the_same_ark(minting: Minting) -> None:
    registry, announced = minting.registry, minting.mint(1)
    with registry.away():
        with pytest.raises(StepFailed) as down:
            minting.announce(minting.mint(2), 2)
        _assert_outage(down.value)
        with pytest.raises(StepFailed) as down:
            minting.announce(announced, 1)
        _assert_outage(down.value)
        left = minting.ark_of(2)

    minting.announce(announced, 1)
    ark = minting.mint(2)
    minting.announce(ark, 2)

    assert left in (None, ark)
    assert None not in (registry.known(ark), registry.known(announced))


def _assert_outage(failure: StepFailed) -> None:
    assert isinstance(failure, ServiceDown), f"no outage, so the job fails: {failure.message}"
    assert failure.service is Service.IDENTIFIERS


def test_a_refusal_fails_the_job_until_an_operator_resumes_it(minting: Minting) -> None:
    registry = minting.registry
    with registry.refuses(), pytest.raises(StepFailed) as failed:
        minting.announce(minting.mint(1), 1)

    assert (failed.value.kind, bool(failed.value.message)) == (FailureKind.SYSTEM, True)
    left = minting.ark_of(1)
    ark = minting.mint(1)
    minting.announce(ark, 1)
    assert left in (None, ark)
    assert registry.known(ark) is not None
