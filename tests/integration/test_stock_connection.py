"""With the setting for kazoo's own connection, the same tests pass but those of exceptions at any line."""

import kazoo
import pytest

from pipeline.settings import Settings
from tests.integration.test_connection import (  # noqa: F401  # run with this module's settings
    PATH,
    SHORT,
    test_a_close_whose_answer_never_comes_has_a_limit_and_the_locks_go,
    test_a_command_that_is_not_answered_leaves_no_socket_open,
    test_a_cut_connection_ends_what_waits_and_a_new_one_answers,
    test_a_session_that_is_closed_while_it_asks_for_an_older_record_leaves_no_connection,
    test_a_session_that_is_closed_while_it_prepares_the_record_leaves_no_connection,
    test_a_session_that_is_closed_while_threads_ask_ends_at_once,
    test_a_thread_that_waits_for_long_gets_its_answer_from_the_thread_of_kazoo,
    test_a_watch_fires_while_nobody_waits_for_an_answer,
    test_an_answer_larger_than_one_piece_is_read_whole,
    test_many_threads_outlive_cut_connections,
    test_requests_reach_the_server_in_the_order_in_which_they_were_made,
    test_the_answer_to_a_command_is_read_to_its_end,
    test_threads_that_ask_at_once_get_their_own_answers,
)
from tests.integration.test_zookeeper_trust import (  # noqa: F401
    secure,
    site,
    test_a_server_of_another_authority_is_refused,
    test_the_memory_of_a_server_is_known_over_tls_too,
    test_the_record_is_used_over_tls_with_a_certificate,
)
from zkstate.connection.session import Session, connect


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"zk_client": "kazoo", **SHORT})


def test_the_setting_leaves_requests_and_answers_to_the_threads_of_kazoo(session: Session) -> None:
    assert not session.zk.is_direct
    assert type(session.zk._connection).__module__.startswith("kazoo.")


def test_a_client_on_a_release_of_kazoo_that_is_not_known_works_like_that(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kazoo, "__version__", "2.12.0")
    with connect(settings.model_copy(update={"zk_client": "direct"})) as session:
        session.ensure_node(PATH, b"0")

        assert not session.zk.is_direct
        assert session.get_many([PATH] * 3) == [session.find(PATH)] * 3
