"""Shared by the routes of one web process: the site, its board, and the limits on requests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Event
from typing import Protocol

from fastapi import APIRouter
from starlette.requests import HTTPConnection

from entrypoints.web.limits import (
    FILES_PER_MINUTE,
    LOGIN_CODES_PER_MINUTE,
    LOGIN_POLLS_PER_MINUTE,
    LOGIN_STARTS_PER_MINUTE,
    LONG,
    REQUESTS_PER_MINUTE,
    WRONG_TOKENS_PER_MINUTE,
    Attempts,
    HeldBodies,
    InProgress,
    RateLimit,
    SlowWork,
    WrongTokens,
)
from entrypoints.web.metrics import ArklineCollector, RequestMetrics
from entrypoints.web.recent import Recent
from entrypoints.web.retrieval import Retrievals
from entrypoints.web.streams import Streams
from operations.board import throughput
from operations.board.board import Board
from operations.board.throughput import Throughput
from operations.board.values import BatchPage, BoardBatch
from operations.jobs.batch_view import BatchView
from operations.objects.retrieval import EventWriter
from operations.run import UNWATCHED, Run
from operations.site import Site
from operations.tokens import Authenticator, InvalidToken, Logins
from pipeline import plugins
from pipeline.attempt import Attempt, is_over
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.principal import Interface, Principal
from pipeline.settings import Settings
from pipeline.states import BatchState
from zkstate.connection.session import Session, connect
from zkstate.fleet import holds


class Login(Protocol):
    """A login to the pages other than by token: a plugin adds it to the group `arkline.login`.

    Thread-safe. While what it needs does not answer, it raises ServiceUnreachable.
    """

    path: str
    """The target of the login page's button; takes the requested page as `next`."""
    router: APIRouter
    """Its pages, which finish by calling `set_login` with a session, and lead to no other site.

    A session has a colon, which no token has. The browser never gets it, and it is valid in every process.
    """

    def principal(self, session: str) -> Principal:
        """The logged-in principal, with the rights that it has now; InvalidToken if the session has ended.

        Its name has a colon, so that it is not that of a token.
        """


FOR_A_PLACE = 10.0
"""Seconds that a request waits for a place to do slow work."""

A_DAY = 86_400.0
"""In seconds: the client of a form waits for its answer, and has already sent everything."""


@dataclass(frozen=True)
class WebContext:
    """Shared by all requests; all of it is thread-safe."""

    site: Site
    board: Board
    run: Run = UNWATCHED
    """How a verb reports progress and learns that it should stop, if its caller is in this process."""
    streams: Streams = field(default_factory=Streams)
    in_progress: InProgress = field(default_factory=InProgress)
    held_bodies: HeldBodies = field(default_factory=HeldBodies)
    rate_limit: RateLimit = field(default_factory=lambda: RateLimit(REQUESTS_PER_MINUTE))
    rate_limit_of_files: RateLimit = field(default_factory=lambda: RateLimit(FILES_PER_MINUTE, "files"))
    wrong_tokens: WrongTokens = field(default_factory=lambda: WrongTokens(WRONG_TOKENS_PER_MINUTE))
    login_starts: Attempts = field(default_factory=lambda: Attempts(LOGIN_STARTS_PER_MINUTE))
    login_polls: Attempts = field(default_factory=lambda: Attempts(LOGIN_POLLS_PER_MINUTE))
    login_codes: Attempts = field(default_factory=lambda: Attempts(LOGIN_CODES_PER_MINUTE))
    slow_work: SlowWork = field(default_factory=SlowWork)
    fleet_work: SlowWork = field(default_factory=lambda: SlowWork(threads=8, of_one=4))
    """Requests that query the workers and Redis; a client repeats them, and sends several at a time."""
    worker_work: SlowWork = field(default_factory=lambda: SlowWork(threads=8, of_one=4, wait=FOR_A_PLACE))
    """Requests about single workers: whoever restarts a fleet drains several of them at a time."""
    record_work: SlowWork = field(default_factory=lambda: SlowWork(threads=8, seconds=LONG, wait=FOR_A_PLACE))
    """Requests that read all jobs of a batch or all files of an object; programs may repeat them."""
    form_work: SlowWork = field(default_factory=lambda: SlowWork(threads=8, seconds=A_DAY, wait=A_DAY))
    """Forms that have arrived completely: their files, of any size, are copied to uploads."""
    retrieval_work: SlowWork = field(
        default_factory=lambda: SlowWork(threads=8, seconds=LONG, of_one=4, wait=FOR_A_PLACE)
    )
    """What precedes the bytes of a retrieval: its object, and the documents of a bag."""
    preview_work: SlowWork = field(
        default_factory=lambda: SlowWork(threads=4, seconds=60.0, wait=FOR_A_PLACE)
    )
    """Previews, one of a caller at a time: an image may have to be read and decoded."""
    retrievals: Retrievals = field(default_factory=Retrievals)
    events: EventWriter = field(default_factory=EventWriter)
    """Enters the events of retrievals."""
    provider_work: SlowWork = field(default_factory=lambda: SlowWork(of_one=2))
    """Requests to a login provider; one proxy address stands for many people."""
    inventory_seen: Event = field(default_factory=Event)
    """Set once the inventory has been found: if it is missing later, that is an outage, not a new site."""

    def __post_init__(self) -> None:
        """Compute what threads share while there is one: from Python 3.12 on, two could compute it twice.

        Except the login, because a mistake in its settings is raised.
        """
        for owner in (self, self.site):
            for name, value in vars(type(owner)).items():
                if isinstance(value, cached_property) and name != "login":
                    getattr(owner, name)

    @property
    def settings(self) -> Settings:
        return self.site.settings

    @property
    def session(self) -> Session:
        return self.site.session

    @cached_property
    def authenticator(self) -> Authenticator:
        return Authenticator(self.tokens, self._rights)

    @cached_property
    def logins(self) -> Logins:
        return Logins(self.tokens, self._rights)

    def _rights(self, credential: str) -> Principal:
        """The rights of a login, from its session at the provider or from its token."""
        if ":" not in credential:
            return self.authenticator.principal(credential, Interface.WEB)
        if self.login is None:
            raise InvalidToken("this site has no login at a provider any more: log in with a token")
        return self.login.principal(credential)

    def tokens(self) -> SqlInventory:
        """The database of tokens and logins, which work without ZooKeeper; for a new site it is created.

        ServiceDown while it is missing: an empty database would refuse every token.
        """
        inventory = open_inventory(self.settings.inventory, create=False)
        if not self.inventory_seen.is_set():
            if not inventory.database.exists():
                return self.site.inventory()
            self.inventory_seen.set()
        return inventory

    @cached_property
    def login(self) -> Login | None:
        """The provider login; None if not set up, UsageRefused if it is misconfigured."""
        opener: Callable[[Settings], Login] | None = plugins.chosen(plugins.LOGIN)
        return opener(self.settings) if opener else None

    @cached_property
    def requests(self) -> RequestMetrics:
        return RequestMetrics(lambda: self.streams.number)

    @cached_property
    def metrics(self) -> ArklineCollector:
        """One collector for all scrapes: it caches the answers of workers and disks for some seconds."""
        return ArklineCollector(self.board, self.site)

    @cached_property
    def _throughput(self) -> Recent[Throughput | None]:
        def ask() -> Throughput | None:
            return throughput.read(self.site, recent.last)

        recent = Recent(ask, "what was stored", throughput.PERIOD, throughput.LATE)
        return recent

    def throughput(self) -> Throughput | None:
        """The last reading of what was stored: the inventory is asked once a minute, for all requests."""
        return self._throughput.get()

    def with_time_left(self, page: BatchPage) -> BatchPage:
        """The batches with their time left; the stops are the board's, as the batches are."""
        left = self._times_left(page.rows, self.board.stopped)
        rows = (row.model_copy(update={"seconds_left": left.get(row.bid)}) for row in page.rows)
        return page.model_copy(update={"rows": tuple(rows)})

    def timed(self, view: BatchView) -> BatchView:
        """The batch with its time left; the stops are read from the record, as the batch was."""
        left = self._times_left((view,), lambda: holds.stops(self.session).keys())
        return view.model_copy(update={"seconds_left": left.get(view.bid)})

    def _times_left(
        self, batches: Sequence[BoardBatch | BatchView], stopped: Callable[[], Collection[str]]
    ) -> dict[str, float]:
        if not any(one.status is BatchState.PROCESSING for one in batches):
            return {}
        return throughput.times_left(self.throughput(), self.session, stopped(), batches)

    def run_of(self, attempt: Attempt) -> Run:
        """The run of a long verb, which stops once the attempt is over."""
        return replace(self.run, should_stop=lambda: is_over(attempt) or self.run.should_stop())


def site_of(request: HTTPConnection) -> Site:
    return context_of(request).site


def context_of(request: HTTPConnection) -> WebContext:
    context: WebContext = request.app.state.context
    return context


ANSWER_TIMEOUT = 3.0
"""Seconds to wait for ZooKeeper; after that the API answers 503 with Retry-After."""


@contextmanager
def following(settings: Settings) -> Iterator[tuple[Site, Board]]:
    """The site and its board, for the block.

    ZooKeeper may be unreachable: then the pages say so, say what helps, and show that nothing is known yet.
    """
    with connect(settings, ANSWER_TIMEOUT, answer_timeout=ANSWER_TIMEOUT, required=False) as session:
        board = Board.open(session)
        try:
            yield Site(settings, session), board
        finally:
            board.close()
