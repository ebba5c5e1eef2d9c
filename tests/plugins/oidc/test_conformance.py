"""The login at an OpenID provider passes the suite of logins; logins that break a promise do not."""

from pathlib import Path

import pytest

from tests.support.conforming import passed

SUBJECTS = "--arkline-login=tests.plugins.oidc.conforming"


def test_the_login_at_a_provider_passes(tmp_path: Path) -> None:
    assert passed(tmp_path, f"{SUBJECTS}:provider") == 19


@pytest.mark.parametrize(
    ("subject", "test"),
    [
        ("trusting", "test_an_invented_session_is_nobodys"),
        ("remembering", "test_rights_that_are_withdrawn_are_lost_soon"),
        ("generous", "test_the_addresses_of_a_login_log_nobody_else_in"),
        ("nameless", "test_the_name_is_not_that_of_a_token"),
        ("forwarding", "test_the_login_leads_to_no_other_site"),
    ],
)
def test_a_login_that_breaks_a_promise_fails(tmp_path: Path, subject: str, test: str) -> None:
    with pytest.raises(AssertionError, match=f"FAILED .*{test}"):
        passed(tmp_path, f"{SUBJECTS}:{subject}", "-k", test)
