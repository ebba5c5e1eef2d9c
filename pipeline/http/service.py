"""One request to a service. A redirect is an answer: its address is neither followed nor read."""

from typing import Any

import requests
from requests.adapters import BaseAdapter


class _Session(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """requests parses the address even if none is followed, with ValueError or an open socket left."""
        return None


def request(
    method: str, url: str, *, stream: bool = False, adapter: BaseAdapter | None = None, **options: Any
) -> requests.Response:
    """As `requests.request`, without redirects; requests.RequestException if there is no answer.

    `adapter`: what sends the request instead of HTTP.
    """
    with _Session() as session:
        if adapter is not None:
            session.mount(url, adapter)
        answer = session.request(method, url, allow_redirects=False, stream=True, **options)
    if not stream:
        with answer:  # requests leaves the socket open if the body cannot be decoded
            _ = answer.content
    return answer
