"""Which failures of a request are followed by another try at once."""

import pytest

from pipeline.http.service import TRIES, retry_request
from pipeline.outcome import OutcomeUnknown, StepFailed, content, system, transient


@pytest.mark.parametrize(
    ("failure", "tries"),
    [
        (transient("the service answered 503"), TRIES),
        (transient("the service answered 503", retry_after=0.0), TRIES),
        (transient("the service answered 503", retry_after=3600), 1),
        (OutcomeUnknown("the answer was lost", retry_after=0.0), 1),
        (system("the service refused the login"), 1),
        (content("the address is refused"), 1),
    ],
)
def test_only_a_transient_failure_of_a_request_that_had_no_effect_is_repeated(
    failure: StepFailed, tries: int
) -> None:
    requests = 0

    def request() -> None:
        nonlocal requests
        requests += 1
        raise failure

    with pytest.raises(StepFailed) as raised:
        retry_request(request, first_pause=0.0)

    assert raised.value is failure
    assert requests == tries
