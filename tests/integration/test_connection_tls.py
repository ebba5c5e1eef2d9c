"""The direct connection with TLS, where OpenSSL allows one thread at a time: the same tests."""

from collections.abc import Iterator

import pytest

from pipeline.settings import Settings
from tests.integration.test_connection import (  # noqa: F401  # run with this module's settings
    SHORT,
    test_a_close_that_is_interrupted_at_any_line_can_be_repeated_and_releases_the_locks,
    test_a_close_whose_answer_never_comes_has_a_limit_and_the_locks_go,
    test_a_cut_connection_ends_what_waits_and_a_new_one_answers,
    test_a_request_that_is_interrupted_while_the_connection_is_away_delays_no_later_one,
    test_a_session_that_is_closed_while_threads_ask_ends_at_once,
    test_a_thread_that_is_interrupted_at_any_line_spoils_no_later_request,
    test_a_thread_that_waits_for_long_gets_its_answer_from_the_thread_of_kazoo,
    test_a_watch_fires_while_nobody_waits_for_an_answer,
    test_an_answer_larger_than_one_piece_is_read_whole,
    test_an_exception_of_a_signal_handler_leaves_the_session_usable,
    test_many_threads_outlive_cut_connections,
    test_requests_reach_the_server_in_the_order_in_which_they_were_made,
    test_the_thread_of_kazoo_sleeps_while_a_thread_reads_its_answers,
    test_threads_that_ask_at_once_get_their_own_answers,
)
from tests.integration.test_zookeeper_trust import Site, secure_settings, site  # noqa: F401
from tests.servers.proxy import Proxy


@pytest.fixture
def settings(settings: Settings, site: Site) -> Settings:  # noqa: F811
    return secure_settings(settings.model_copy(update=SHORT), site)


@pytest.fixture
def zookeeper_proxy(site: Site) -> Iterator[Proxy]:  # noqa: F811
    with Proxy(int(site.hosts.rpartition(":")[2])) as proxy:
        yield proxy
