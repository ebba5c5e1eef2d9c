"""The program of a worker: `python -m tasks.worker_program -c 2 -n worker@%h`.

`celery worker` does the same work, and loads the programs that are installed beside it, such as Flower and a
shell: 12 MB in each process of the pool.
"""

import argparse
import sys
from collections.abc import Sequence

from celery.utils.nodenames import default_nodename, host_format

from tasks.app import app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a worker until SIGTERM; its exit code. The options are named as those of `celery worker`."""
    parser = argparse.ArgumentParser(prog="python -m tasks.worker_program", description=__doc__)
    parser.add_argument("-c", "--concurrency", type=int, help="processes of the pool")
    parser.add_argument("-n", "--hostname", help="name among the workers: NAME@HOST, %%h is this host")
    parser.add_argument("-Q", "--queues", help="queues to consume, separated by commas; default: all")
    options = parser.parse_args(arguments)
    worker = app.Worker(
        hostname=host_format(default_nodename(options.hostname)),
        concurrency=options.concurrency,
        queues=options.queues,
        without_mingle=True,
        without_gossip=True,
    )
    worker.start()
    return worker.exitcode or 0


if __name__ == "__main__":
    sys.exit(main())
