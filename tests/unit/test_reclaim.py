from pipeline.working_storage.workspace import Holder, Reclaim, plan

OLDEST, NEXT, LATEST = Holder("jid1", 10, 30), Holder("jid2", 20, 0), Holder("jid3", 5, 50)
FAILED = (OLDEST, NEXT, LATEST)


def test_reservations_are_given_up_the_oldest_failure_first_and_no_more_than_needed() -> None:
    assert plan(8, FAILED) == Reclaim(("jid1",))
    assert plan(11, FAILED) == Reclaim(("jid1", "jid2"))


def test_content_is_removed_only_once_all_reservations_are_given_up() -> None:
    assert plan(35, FAILED) == Reclaim(("jid1", "jid2", "jid3"))
    assert plan(36, FAILED) == Reclaim(("jid1", "jid2", "jid3"), ("jid1",))


def test_nothing_is_given_up_for_a_job_that_would_not_fit_even_then() -> None:
    assert plan(116, FAILED) is None
    assert plan(115, FAILED) == Reclaim(("jid1", "jid2", "jid3"), ("jid1", "jid3"))


def test_nothing_is_given_up_while_there_is_room() -> None:
    assert plan(0, FAILED) == Reclaim()
