"""A seed always gives the same run."""

from pipeline.settings import Settings
from tests.servers.http_source import HttpSource
from tools.chaos.deposits import PLANTED, REJECTION, VIRUS, Depositor
from tools.chaos.hosts.host_faults import PARTITIONS
from tools.chaos.profiles import ALL, REVIEWED, SCANNED, WARNED
from tools.chaos.run import BEGIN
from tools.chaos.schedule import OF_HOSTS, Kind, draw

FIRST_OF_501 = ["host-one-byte-per-25-s", "working-storage-not-mounted", "kill-while-splitting"]
"""The first faults of a schedule before there were faults of hosts."""


def test_a_seed_always_gives_the_same_schedule_and_another_seed_another() -> None:
    assert draw(3, 50, 100) == draw(3, 50, 100)
    assert draw(3, 50, 100) != draw(4, 50, 100)


def test_a_long_schedule_has_every_kind_and_a_short_one_no_kind_twice() -> None:
    assert {fault.kind for fault in draw(1, 100, 300)} == set(Kind)
    short = [fault.kind for fault in draw(1, 8, 25)]
    assert len(set(short)) == len(short) == 8


def test_every_kind_can_be_done() -> None:
    assert BEGIN.keys() == set(Kind)


def test_faults_come_in_order_and_within_the_time() -> None:
    moments = [fault.at for fault in draw(5, 40, 120)]
    assert moments == sorted(moments)
    assert moments[0] >= 4
    assert moments[-1] <= 120


def test_a_kind_that_may_last_longer_than_the_run_is_left_out() -> None:
    assert all(fault.kind.longest <= 21 for fault in draw(1, 100, 21))


def test_an_outage_lasts_longer_than_the_first_tries_of_a_step_and_a_zombie_than_its_session() -> None:
    five_tries = 75  # seconds: 5, 10, 20 and 40 between them
    for kind in Kind:
        if kind.label.startswith(("freeze-pool", "freeze-worker", "freeze-while")):
            assert kind.shortest > Settings().zk_session_timeout
        if kind.label.endswith(("outage", "not-mounted", "read-only", "dead", "answers-503")):
            assert kind.shortest > five_tries


def test_faults_of_hosts_leave_the_schedules_of_one_machine_as_they_were() -> None:
    one_machine = draw(501, 40, 300, set(Kind) - OF_HOSTS)

    assert [fault.kind.label for fault in one_machine[:3]] == FIRST_OF_501
    assert not {fault.kind for fault in one_machine} & OF_HOSTS


def test_a_host_is_cut_off_from_each_combination_of_zookeeper_redis_and_storage() -> None:
    combinations = {frozenset(services) for services in PARTITIONS.values()}

    assert len(PARTITIONS) == len(combinations) == 7
    assert frozenset.union(*combinations) == {"zookeeper", "redis", "storage"}


def test_what_the_machine_cannot_do_is_left_out() -> None:
    assert Kind.WORKING_FULL not in {
        fault.kind for fault in draw(1, 100, 300, set(Kind) - {Kind.WORKING_FULL})
    }


def test_a_seed_always_gives_the_same_deposits() -> None:
    with HttpSource() as first, HttpSource() as second:
        one, two = (Depositor(9, source).make(60, 50.0) for source in (first, second))

    assert one == two
    objects = [deposited for deposit in one.deposits for deposited in deposit.objects]
    assert len(objects) == 60
    assert sum(bool(deposited.planted) for deposited in objects) == round(60 * PLANTED)
    assert len({deposited.path for deposited in objects}) == 60
    local_ids = [deposited.local_id for deposited in objects if deposited.local_id]
    assert len(set(local_ids)) < len(local_ids), "some objects come twice"


def test_collections_with_checks_get_viruses_and_those_with_reviews_get_objects_to_reject() -> None:
    with HttpSource() as first, HttpSource() as second:
        one, two = (Depositor(9, source).make(60, 50.0, ALL) for source in (first, second))

    assert one == two
    objects = [deposited for deposit in one.deposits for deposited in deposit.objects]
    assert {deposited.profile for deposited in objects} == set(ALL)
    infected = [deposited for deposited in objects if deposited.infected]
    assert {deposited.profile for deposited in infected} == {SCANNED, WARNED}
    assert all(deposited.planted for deposited in infected if deposited.profile == SCANNED)
    assert {d.profile for d in objects if d.planted == VIRUS} == {SCANNED}
    assert {d.profile for d in objects if d.planted == REJECTION} == {REVIEWED}
    assert any(d.profile == REVIEWED and not d.planted for d in objects)
