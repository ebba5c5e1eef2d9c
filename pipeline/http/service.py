"""One request to a service. A redirect is an answer: its address is neither followed nor read."""

from typing import Any

import requests


class _Session(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """requests parses the address even if none is followed, with ValueError or an open socket left."""
        return None


def request(method: str, url: str, **options: Any) -> requests.Response:
    """As `requests.request`, without redirects; requests.RequestException if there is no answer."""
    with _Session() as session:
        return session.request(method, url, allow_redirects=False, **options)
