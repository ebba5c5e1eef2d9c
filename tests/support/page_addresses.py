"""The addresses of every page, derived from the routes, so that a browser visits a new page too."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from fastapi.routing import APIRoute

from entrypoints.web.pages import install

NO_PAGES = {"/find"}
"""Redirects alone."""

QUERIES = {
    "/bulk": "?cause={cause}&verb=delete",
    "/notifications/{subscription}/{purpose}": "?code=code",
}
"""Queries that a page needs."""


def page_routes() -> list[str]:
    """The paths of the routes that answer a person's GET with HTML."""
    routes = [route for module in install.PAGES for route in module.router.routes]
    return [
        route.path + QUERIES.get(route.path, "")
        for route in routes
        if isinstance(route, APIRoute)
        and "GET" in (route.methods or ())
        and not route.path.startswith("/live/")
        and not route.path.endswith(".csv")
        and route.path not in NO_PAGES
    ]


def addresses(values: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Every page, and one with parameters once for each of their `values`."""
    for path in page_routes():
        names = re.findall(r"{(\w+)(?::path)?}", path)
        for chosen in itertools.product(*(values[name] for name in names)):
            yield path.replace(":path}", "}").format(**dict(zip(names, chosen, strict=True)))
