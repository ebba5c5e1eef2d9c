"""Writers that die, stop or meet each other, and a place that is away: nobody loses or doubles a version."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count
from typing import TypeVar

import pytest

from pipeline.deployment import Deployment, StorageStore
from pipeline.outcome import AttemptOver, Later, Service, ServiceDown, StepFailed
from pipeline.storage.base import Storage
from plugins.conformance import deaths
from plugins.conformance.deaths import End
from plugins.conformance.storing import ARK, UPDATE, A, B, C, Place, jid, key, no_fence, store
from plugins.conformance.subjects import Promise

T = TypeVar("T")

FILES = {A: "two", B: "kept"}
MOST_EFFECTS = 2000
MOMENTS = 12
WRITERS = 6
EARLIER = pytest.mark.parametrize("earlier", [False, True], ids=["a new object", "a next version"])


def arks(place: Place, earlier: bool) -> Iterator[tuple[int, str]]:
    """Objects for one death each, with one version if `earlier`."""
    for number in count(1):
        ark = f"ark:/99999/dies{number}"
        if earlier:
            place.store(3 * number, {A: "one", B: "kept"}, ark=ark)
        yield number, ark


def assert_complete(place: Place, number: int, ark: str, earlier: bool) -> None:
    """After the death of job 3n+1: its version is whole or absent, and the next writer has no trouble."""
    storage = place.given.open(None)
    own, other = 3 * number + 1, 3 * number + 2
    there = place.version_of(own, ark, storage)
    if earlier:
        assert storage.read(ark, A, 1) == b"one"
    if there is not None:
        storage.verify(there)
    if number % 3 == 0:
        storage.tidy(lambda ended: ended == jid(own))
    if number % 2 == 0:  # the object's next writer is another job
        store(storage, place.request(other, {C: "three"}, UPDATE, ark=ark))
    stored = store(storage, place.request(own, FILES, ark=ark))

    assert there in (None, stored)
    storage.verify(stored)
    assert {file.path for file in stored.files} >= FILES.keys()
    assert len(storage.versions_of(ark)) == 1 + earlier + (number % 2 == 0)
    assert {path: storage.read(ark, path, stored.number) for path in FILES} == {A: b"two", B: b"kept"}
    if earlier:
        assert storage.read(ark, A, 1) == b"one"
    assert storage.problems_of(ark, stored.url) == ()


@EARLIER
def test_a_writer_that_dies_before_any_of_its_effects_leaves_nothing_or_the_whole(
    place: Place, earlier: bool, every: int
) -> None:
    place.store(1, FILES, ark="ark:/99999/first")  # loads what is loaded late, and makes the place
    for number, ark in arks(place, earlier):
        writer = place.writer(3 * number + 1, FILES, ark)
        end = deaths.before_effect(writer, 1 + (number - 1) * every)
        assert end is not End.FAILED, "the writer failed: its error is in the output"
        if end is End.SURVIVED:
            break
        assert_complete(place, number, ark, earlier)
        assert number < MOST_EFFECTS
    if number == 1:
        pytest.skip("Python reports no effect of this storage; the next test kills it at any time")


@EARLIER
def test_a_writer_that_is_killed_at_any_time_leaves_nothing_or_the_whole(
    place: Place, earlier: bool, every: int
) -> None:
    place.needs(Promise.ONE_VERSION)  # a request of the dead may be on its way while the next attempt asks
    place.store(1, FILES, ark="ark:/99999/first")
    began = time.monotonic()
    store(place.given.open(None), place.request(2, FILES, ark="ark:/99999/second"))
    usual = time.monotonic() - began
    moments = max(1, MOMENTS // every)

    for number, ark in arks(place, earlier):
        moment = 1.2 * usual * number / moments
        end = deaths.after_seconds(place.writer(3 * number + 1, FILES, ark), moment)
        assert end is not End.FAILED, "the writer failed: its error is in the output"
        assert_complete(place, number, ark, earlier)
        if number == moments:
            break


def test_a_writer_that_wakes_up_after_another_attempt_took_its_job_makes_no_second_version(
    place: Place,
) -> None:
    own = place.request(1, {A: "a"})

    def taken_over() -> None:
        with suppress(Later):  # storage may let nobody else publish meanwhile
            place.storage.store(own, no_fence)
            place.storage.store(place.request(2, {B: "b"}), no_fence)
        raise AttemptOver("another attempt has the job")

    with pytest.raises(AttemptOver):
        place.given.open(None).store(own, taken_over)
    place.store(1, {A: "a"})
    place.store(2, {B: "b"})

    assert place.contents(1) == {A: b"a"}
    assert place.contents() == {B: b"b"}
    assert place.number_of_versions() == 2


def together(acts: list[Callable[[], T]]) -> list[T]:
    """The results of all, begun at the same moment."""
    start = threading.Barrier(len(acts))

    def run(act: Callable[[], T]) -> T:
        start.wait()
        return act()

    with ThreadPoolExecutor(len(acts)) as threads:
        return [future.result() for future in [threads.submit(run, act) for act in acts]]


def writer(place: Place, number: int, name: str, ark: str = ARK) -> Callable[[], int]:
    """Job `number` stores one file with a storage of its own; returns the number of the version."""
    storage, request = place.given.open(None), place.request(number, {name: name}, ark=ark)
    return lambda: store(storage, request).number


def test_jobs_that_store_one_object_at_the_same_time_make_a_version_each(place: Place) -> None:
    numbers = range(1, WRITERS + 1)

    versions = together([writer(place, number, f"producer/{number}.txt") for number in numbers])

    assert sorted(versions) == list(numbers)
    for number, version in zip(numbers, versions, strict=True):
        name = f"producer/{number}.txt"
        assert place.contents(version) == {name: name.encode()}
        stored = place.version_of(number)
        assert stored is not None
        assert stored.number == version
        place.storage.verify(stored)


def test_updates_of_one_object_at_the_same_time_lose_nothing_of_each_other(place: Place) -> None:
    place.needs(Promise.ONE_VERSION)
    place.store(1, {A: "a"})
    numbers = range(2, WRITERS + 2)

    def update(number: int) -> Callable[[], object]:
        request = place.request(number, {f"producer/{number}.txt": str(number)}, UPDATE)
        storage = place.given.open(None)
        return lambda: store(storage, request)

    together([update(number) for number in numbers])

    assert place.contents() == {A: b"a"} | {
        f"producer/{number}.txt": str(number).encode() for number in numbers
    }


def test_attempts_at_one_job_at_the_same_time_make_one_version(place: Place) -> None:
    """One of them may end the others."""
    place.needs(Promise.ONE_VERSION)

    def attempt(store_file: Callable[[], int]) -> int | None:
        try:
            return store_file()
        except AttemptOver:
            return None

    versions = together([partial(attempt, writer(place, 1, A)) for _ in range(WRITERS)])

    assert set(versions) - {None} == {1}
    assert place.number_of_versions() == 1
    assert place.contents() == {A: A.encode()}


def test_new_objects_are_stored_at_the_same_time(place: Place) -> None:
    numbers = range(1, 2 * WRITERS + 1)

    versions = together([writer(place, number, A, f"ark:/99999/new{number}") for number in numbers])

    assert versions == [1] * len(numbers)
    assert all(place.contents(ark=f"ark:/99999/new{number}") == {A: A.encode()} for number in numbers)


def uses(storage: Storage, place: Place, url: str) -> list[Callable[[], object]]:
    return [
        lambda: storage.check(place.request(2, {B: "b"})),
        lambda: storage.store(place.request(2, {B: "b"}), no_fence),
        lambda: storage.version_of(ARK, jid(1), key=key(1)),
        lambda: storage.has_object(ARK),
        lambda: storage.read(ARK, A),
        lambda: storage.versions_of(ARK),
    ]


def of_deployment(place: Place) -> Storage:
    """The storage of a worker, which expects the place of its deployment."""
    marked = place.storage.deployment_store()
    if marked is None:
        return place.storage
    deployment = marked.read_deployment() or Deployment()
    marked.write_deployment(deployment)
    return place.given.open(lambda: deployment.id)


def test_while_the_place_is_away_every_use_is_an_outage_and_afterwards_all_is_there(place: Place) -> None:
    url = place.store(1, {A: "a"}).url
    for storage in (of_deployment(place), of_deployment(place)):
        with place.given.away():
            for use in uses(storage, place, url):
                with pytest.raises(ServiceDown) as down:
                    use()
                assert down.value.service is Service.STORAGE
            with pytest.raises(StepFailed) as failed:
                list(storage.read_back(ARK, url))
            assert failed.value.is_tried_again
        assert storage.read(ARK, A) == b"a"
        assert place.number_of_versions() == 1
    store(of_deployment(place), place.request(2, {B: "b"}))
    assert place.contents() == {B: b"b"}


def test_a_place_that_disappears_while_a_version_is_stored_gets_no_half_of_it(place: Place) -> None:
    place.store(1, {A: "a"})
    storage = of_deployment(place)

    with ExitStack() as left:
        asked = count()

        def fence() -> None:
            if next(asked) == 0:
                left.enter_context(place.given.away())

        with pytest.raises((StepFailed, Later)):
            storage.store(place.request(2, {B: "b"}), fence)

    assert place.version_of(2) is None
    assert place.contents() == {A: b"a"}
    store(storage, place.request(2, {B: "b"}))
    assert place.contents() == {B: b"b"}
    assert place.number_of_versions() == 2


def keeper(place: Place) -> StorageStore:
    marked = place.storage.deployment_store()
    if marked is None:
        pytest.skip(
            "this storage keeps no deployment id, so arkline cannot notice another place at its address"
        )
    return marked


def test_a_place_keeps_the_deployment_id_and_has_no_mark(place: Place) -> None:
    marked = keeper(place)
    assert (marked.read_deployment(), marked.is_empty()) == (None, True)
    deployment = Deployment(mark=7)

    marked.write_deployment(deployment)

    again = place.given.open(None).deployment_store()
    assert again is not None
    assert again.read_deployment() == deployment.model_copy(update={"mark": 0})
    assert again.service is Service.STORAGE
    assert again.place
    assert again.is_empty()
    place.store(1, {A: "a"})
    assert not again.is_empty()
    assert (again.has_version(ARK, jid(1)), again.has_version(ARK, jid(2))) == (True, False)


def test_a_place_keeps_its_deployment_id_when_it_is_given_another(place: Place) -> None:
    marked = keeper(place)
    first = Deployment()

    for given in (first, Deployment()):
        marked.write_deployment(given)

    assert marked.read_deployment() == first


def test_a_place_without_its_deployment_id_or_with_another_is_neither_used_nor_made(place: Place) -> None:
    marked = keeper(place)
    storage = place.given.open(lambda: "a" * 32)
    for marker in (None, Deployment(id="b" * 32)):
        if marker is not None:
            marked.write_deployment(marker)
        for use in uses(storage, place, ""):
            with pytest.raises(ServiceDown) as down:
                use()
            assert down.value.service is Service.STORAGE
        assert marked.is_empty()
        assert marked.read_deployment() == marker
