"""An inventory: one object for an id, one version for a job, whatever dies, is away or is repeated.

With a service beside it, both know the same, and the service is told before ours.
"""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.inventory.recording import Placement
from pipeline.inventory.sql import SqlInventory
from pipeline.outcome import Service, ServiceDown, StepFailed
from pipeline.states import FailureKind
from plugins.conformance.deaths import End
from plugins.conformance.entering import ARK, COLLECTION, OTHER, OWNER, SOMEBODY, TITLE, Entering, complete
from plugins.conformance.minting import a_job
from plugins.conformance.storing import refused

CONTENT, SYSTEM = FailureKind.CONTENT, FailureKind.SYSTEM

AWKWARD = (
    *(
        "plain",
        "two words",
        "a/b/c",
        "../up",
        "a?b=c&d#e",
        "100%25",
        "+1",
        "a,b",
        "a;b",
        "a|b",
        '"x"',
        "it's",
    ),
    *(
        "<b>&amp;</b>",
        "Größe",
        "\N{CJK UNIFIED IDEOGRAPH-65E5}",
        "Case",
        "case",
        "e\N{COMBINING ACUTE ACCENT}",
    ),
    *("\N{LATIN SMALL LETTER E WITH ACUTE}", "%s", "{0}", "null", "0", "x" * 250),
)
"""Local ids that depositors give, each of which names an object of its own."""

MANY = 120

MOST_EFFECTS = 200


def test_an_object_is_found_again_by_its_job_its_ids_and_its_ark(entering: Entering) -> None:
    entering.inventory.record(entering.recording(1, local_id=("loc-1", "loc-2")))

    again = entering.open()
    assert again.ark_of(a_job(1)) == ARK
    assert again.ark_of(a_job(2)) is None
    assert again.arks_of(OWNER, ("loc-1", "loc-2", "loc-3")) == {"loc-1": ARK, "loc-2": ARK}
    assert sorted(again.local_ids_of(ARK)) == ["loc-1", "loc-2"]
    assert again.known_arks((ARK, OTHER)) == {ARK}
    assert again.placements_of((ARK, OTHER)) == {ARK: Placement(OWNER, frozenset({COLLECTION}), TITLE, 1)}
    assert again.placement_of(OTHER) is None


def test_an_inventory_without_the_object_says_so(entering: Entering) -> None:
    assert entering.inventory.arks_of(OWNER, ("loc-1",)) == {}
    assert entering.inventory.arks_of(OWNER, ()) == {}
    assert entering.inventory.local_ids_of(ARK) == ()


def test_recording_a_version_again_changes_nothing(entering: Entering) -> None:
    recording = entering.recording(1, local_id=("loc-1",))
    known = []
    for _ in range(3):
        entering.open().record(recording)
        own = entering.given.service
        known.append(own and own.registry.known(ARK))

    assert entering.versions() == [(1, a_job(1).jid)]
    assert known == known[:1] * 3
    assert entering.inventory.local_ids_of(ARK) == ("loc-1",)


def test_an_object_gets_version_after_version(entering: Entering) -> None:
    for number in (1, 2, 3):
        entering.inventory.record(entering.recording(number, version=number))

    assert entering.versions() == [(number, a_job(number).jid) for number in (1, 2, 3)]
    assert [entering.inventory.ark_of(a_job(number)) for number in (1, 2, 3)] == [ARK] * 3


def test_a_version_that_another_job_recorded_is_a_failure_of_the_system(entering: Entering) -> None:
    entering.inventory.record(entering.recording(1))
    of_another = entering.recording(2)

    message = refused(SYSTEM, lambda: entering.inventory.record(of_another))

    assert a_job(1).jid in message
    assert entering.versions() == [(1, a_job(1).jid)]


def test_a_job_of_another_deployment_with_the_same_number_is_not_taken_for_it(entering: Entering) -> None:
    entering.inventory.record(entering.recording(1))
    configuration = a_job(1).configuration.model_copy(update={"key": f"{99:032x}"})
    other = a_job(1).model_copy(update={"configuration": configuration})

    refused(SYSTEM, lambda: entering.inventory.ark_of(other))


def test_reserved_ids_name_the_object_and_reserving_them_again_changes_nothing(entering: Entering) -> None:
    for ids in (("loc-1", "loc-2"), ("loc-2", "loc-1"), ("loc-2", "loc-3", "loc-3"), ()):
        entering.open().reserve_local_ids(OWNER, ARK, ids)

    names = ("loc-1", "loc-2", "loc-3")
    assert entering.inventory.arks_of(OWNER, names) == dict.fromkeys(names, ARK)
    assert sorted(entering.inventory.local_ids_of(ARK)) == list(names)


def test_an_id_of_another_object_is_refused_by_name_and_no_id_is_reserved(entering: Entering) -> None:
    inventory = entering.inventory
    inventory.reserve_local_ids(OWNER, OTHER, ("taken",))

    for act in (
        lambda: inventory.reserve_local_ids(OWNER, ARK, ("free", "taken")),
        lambda: inventory.claim_ark(a_job(1), OWNER, ARK, ("free", "taken")),
    ):
        message = refused(CONTENT, act)
        assert "taken" in message
        assert OTHER in message

    assert entering.open().arks_of(OWNER, ("free", "taken")) == {"taken": OTHER}


def test_another_owner_has_the_same_id_for_an_object_of_its_own(entering: Entering) -> None:
    entering.inventory.reserve_local_ids(OWNER, ARK, ("loc-1",))
    entering.inventory.reserve_local_ids(SOMEBODY, OTHER, ("loc-1",))

    assert entering.inventory.arks_of(OWNER, ("loc-1",)) == {"loc-1": ARK}
    assert entering.inventory.arks_of(SOMEBODY, ("loc-1",)) == {"loc-1": OTHER}


def test_an_id_is_kept_letter_by_letter_or_refused_as_content(entering: Entering) -> None:
    accepted = {}
    for number, name in enumerate(AWKWARD):
        ark = f"ark:/99999/awkward{number}"
        refusal = _refusal(entering.inventory, ark, name)
        if refusal is None:
            accepted[name] = ark
        else:
            assert refusal.kind is CONTENT, refusal.message
            assert name in refusal.message

    assert entering.open().arks_of(OWNER, tuple(accepted)) == accepted
    assert {name: entering.inventory.local_ids_of(ark) for name, ark in accepted.items()} == {
        name: (name,) for name in accepted
    }
    assert len(accepted) > len(AWKWARD) // 2


def _refusal(inventory: SqlInventory, ark: str, name: str) -> StepFailed | None:
    try:
        assert inventory.arks_of(OWNER, (name,)) == {}
        inventory.reserve_local_ids(OWNER, ark, (name,))
    except StepFailed as failure:
        return failure
    return None


def test_an_object_with_many_ids_keeps_them_all(entering: Entering) -> None:
    names = tuple(f"loc-{number}" for number in range(MANY))

    entering.inventory.reserve_local_ids(OWNER, ARK, names)

    assert entering.open().arks_of(OWNER, names) == dict.fromkeys(names, ARK)
    assert sorted(entering.inventory.local_ids_of(ARK)) == sorted(names)


def test_an_ark_is_claimed_by_one_job_and_claimed_again_by_it(entering: Entering) -> None:
    assert entering.inventory.claim_ark(a_job(1), OWNER, ARK, ("loc-1",), unused=True)
    assert entering.open().claim_ark(a_job(1), OWNER, ARK, ("loc-1",))
    assert not entering.inventory.claim_ark(a_job(2), OWNER, ARK, ("loc-2",))

    assert entering.inventory.ark_of(a_job(1)) == ARK
    assert entering.inventory.arks_of(OWNER, ("loc-1", "loc-2")) == {"loc-1": ARK}
    assert entering.inventory.known_arks((ARK,)) == {ARK}


def test_an_ark_that_names_an_object_is_not_unused(entering: Entering) -> None:
    entering.inventory.record(entering.recording(1))

    assert not entering.inventory.claim_ark(a_job(2), OWNER, ARK, ("loc-2",), unused=True)

    assert entering.inventory.arks_of(OWNER, ("loc-2",)) == {}


def test_of_many_jobs_that_claim_an_ark_at_once_one_gets_it_with_its_ids(entering: Entering) -> None:
    inventories = [entering.open() for _ in range(4)]
    jobs = range(1, 17)

    def claim(number: int) -> bool:
        return inventories[number % 4].claim_ark(a_job(number), OWNER, ARK, (f"loc-{number}",), unused=True)

    with ThreadPoolExecutor(8) as threads:
        claimed = [number for number, done in zip(jobs, threads.map(claim, jobs), strict=True) if done]

    assert len(claimed) == 1
    names = tuple(f"loc-{number}" for number in jobs)
    assert entering.inventory.arks_of(OWNER, names) == {f"loc-{claimed[0]}": ARK}


def test_an_object_of_another_owner_gets_no_ids_and_is_not_claimed(entering: Entering) -> None:
    inventory = entering.inventory
    inventory.record(entering.recording(1))

    refused(CONTENT, lambda: inventory.reserve_local_ids(SOMEBODY, ARK, ("loc-1",)))
    refused(CONTENT, lambda: inventory.claim_ark(a_job(2), SOMEBODY, ARK, ("loc-1",)))

    assert inventory.arks_of(SOMEBODY, ("loc-1",)) == {}
    assert inventory.local_ids_of(ARK) == ()


def test_a_process_that_dies_before_any_of_its_effects_leaves_what_the_next_attempt_completes(
    entering: Entering,
) -> None:
    ended, number = End.DIED, 0
    while ended is not End.SURVIVED:
        number += 1
        assert number < MOST_EFFECTS
        ark, names = f"ark:/99999/died{number}", (f"loc-{number}", f"too-{number}")
        ended = entering.dies_before(number, ark, names, number)
        assert ended is not End.FAILED, "the inventory failed: its error is in the output"
        complete(entering.open(), number, entering.recording(number, ark, local_id=names))

        assert entering.versions(ark) == [(1, a_job(number).jid)]
        assert entering.inventory.arks_of(OWNER, names) == dict.fromkeys(names, ark)
        own = entering.given.service
        assert own is None or own.registry.known(ark) is not None


def test_a_recorded_version_is_known_to_the_service(entering: Entering) -> None:
    registry = entering.registry
    before = registry.known(ARK)
    entering.inventory.record(entering.recording(1, version=1))
    first = registry.known(ARK)
    entering.inventory.record(entering.recording(2, version=2))

    assert before is None
    assert first is not None
    assert registry.known(ARK) not in (None, first)
    assert registry.known(OTHER) is None


def test_ids_are_known_to_the_service_before_anything_is_stored(entering: Entering) -> None:
    assert entering.inventory.claim_ark(a_job(1), OWNER, ARK, ("loc-1",))
    entering.inventory.reserve_local_ids(OWNER, OTHER, ("loc-2",))

    assert entering.service.arks_of(OWNER, ("loc-1", "loc-2", "loc-3")) == {"loc-1": ARK, "loc-2": OTHER}
    assert tuple(entering.service.local_ids_of(ARK)) == ("loc-1",)


def test_an_id_that_another_system_entered_names_its_object(entering: Entering) -> None:
    entering.service.reserve_local_ids(OWNER, OTHER, ("theirs",))

    assert entering.inventory.arks_of(OWNER, ("theirs", "loc-1")) == {"theirs": OTHER}
    assert entering.inventory.local_ids_of(OTHER) == ("theirs",)
    message = refused(CONTENT, lambda: entering.inventory.reserve_local_ids(OWNER, ARK, ("free", "theirs")))
    assert re.search(rf"theirs.*{re.escape(OTHER)}", message)
    assert entering.service.arks_of(OWNER, ("free", "theirs")) == {"theirs": OTHER}


def test_ids_that_another_system_enters_at_the_same_moment_are_not_overwritten(entering: Entering) -> None:
    service = entering.service
    service.reserve_local_ids(OWNER, OTHER, ("theirs",))

    with pytest.raises(StepFailed):
        service.reserve_local_ids(OWNER, ARK, ("free", "theirs"))

    assert service.arks_of(OWNER, ("free", "theirs")) == {"theirs": OTHER}


def test_jobs_wait_for_a_service_that_is_away_and_nothing_is_half_done(entering: Entering) -> None:
    recording = entering.recording(1, local_id=("loc-1",))
    inventory = entering.inventory
    with entering.registry.away():
        for act in (
            lambda: inventory.arks_of(OWNER, ("loc-1",)),
            lambda: inventory.local_ids_of(ARK),
            lambda: inventory.reserve_local_ids(OWNER, ARK, ("loc-1",)),
            lambda: inventory.claim_ark(a_job(1), OWNER, ARK, ("loc-1",)),
            lambda: inventory.record(recording),
        ):
            with pytest.raises(StepFailed) as down:
                act()
            failure = down.value
            assert isinstance(failure, ServiceDown), f"no outage, so the job fails: {failure.message}"
            assert failure.service is Service.INVENTORY
    assert entering.versions() == []
    assert entering.registry.known(ARK) is None

    complete(entering.open(), 1, recording)

    assert entering.versions() == [(1, a_job(1).jid)]
    assert entering.registry.known(ARK) is not None


def test_a_refusal_fails_the_job_until_an_operator_resumes_it_and_nothing_is_recorded(
    entering: Entering,
) -> None:
    recording = entering.recording(1, local_id=("loc-1",))
    with entering.registry.refuses():
        message = refused(SYSTEM, lambda: entering.inventory.record(recording))
        refused(SYSTEM, lambda: entering.inventory.reserve_local_ids(OWNER, ARK, ("loc-1",)))
    assert message
    assert entering.versions() == []

    complete(entering.open(), 1, recording)

    assert entering.versions() == [(1, a_job(1).jid)]
    assert entering.service.arks_of(OWNER, ("loc-1",)) == {"loc-1": ARK}
