"""The program of Flower: `python -m entrypoints.flower_program OPTIONS`, with the options of `celery flower`.

The page of a task leads to its job or batch on the pages of the site, if their address is known
(ARKLINE_PUBLIC_URL).
"""

import re
import sys
from typing import Any

from flower import urls
from flower.views.tasks import TaskView
from tornado.web import url

from pipeline.settings import Settings
from tasks.app import app

_RECORD = re.compile(r"[jb]id\d+(?=-)")
_BEGIN = b'<p id="taskid"'
"""Where the page of a task has no text yet, in Flower 2.0 to 2.2."""


class LinkedTaskView(TaskView):  # type: ignore[misc]  # Flower has no types
    """The page of a task, with a link to the job or batch that it works on."""

    def initialize(self, pages: str) -> None:
        self._pages = pages

    def render_string(self, template_name: str, **values: Any) -> bytes:
        page: bytes = super().render_string(template_name, **values)
        record = _RECORD.match(getattr(values.get("task"), "uuid", ""))
        if not record:
            return page
        link = f'<p><a href="{self._pages}/find?q={record[0]}">{record[0]} in arkline</a></p>'
        return page.replace(_BEGIN, link.encode() + _BEGIN, 1)


def main() -> None:
    pages = Settings().public_url
    if pages:
        task = url(r"/task/(.+)", LinkedTaskView, {"pages": pages}, name="task")
        urls.handlers[:] = [task if getattr(one, "name", "") == "task" else one for one in urls.handlers]
    app.start(["flower", *sys.argv[1:]])


if __name__ == "__main__":
    main()
