"""What the threads of a web process share is there before there are several."""

from functools import cached_property
from pathlib import Path
from typing import cast

from entrypoints.web.context import WebContext
from operations.board.board import Board
from operations.site import Site
from pipeline.settings import Settings
from zkstate.connection.session import Session


def test_what_threads_share_is_computed_with_the_context(tmp_path: Path) -> None:
    site = Site(Settings(home=tmp_path), cast(Session, None))

    context = WebContext(site, cast(Board, None))

    for owner in (context, site):
        shared = {name for name, value in vars(type(owner)).items() if isinstance(value, cached_property)}
        assert shared
        assert shared - vars(owner).keys() <= {"login"}
