"""One request to a source and its answer: how long they may take."""

import time

from pipeline.attempt import Attempt
from pipeline.http.urls import redact_url
from pipeline.settings import Settings
from pipeline.sources.pace import Pace, TooSlow


class RequestClock:
    """From the moment of the request; `check` ends the request or the answer. One thread uses it."""

    def __init__(
        self, url: str, settings: Settings, attempt: Attempt, pace: Pace, within: float | None = None
    ) -> None:
        self._url = url
        self._attempt = attempt
        self._pace = pace
        self._began = time.monotonic()
        self._answered = False
        self._headers_within = settings.headers_timeout
        self._within = settings.transfer_limit if within is None else within
        """Seconds for the request and the whole answer."""

    def answered(self) -> None:
        """The headers of the last answer are there."""
        self._answered = True

    def check(self) -> None:
        """AttemptOver if the attempt is over; TooSlow if the source takes too long or sends too little."""
        self._attempt.check()
        seconds = time.monotonic() - self._began
        if not self._answered and seconds > self._headers_within:
            raise TooSlow(
                f"{redact_url(self._url)}: the source has not answered within "
                f"{self._headers_within:.0f} seconds, redirects included (ARKLINE_HEADERS_TIMEOUT)"
            )
        if seconds > self._within:
            raise TooSlow(
                f"{redact_url(self._url)}: the answer has not ended within {self._within:.0f} seconds"
            )
        self._pace.check()
