"""A worker that does one state's real work for one job and ends: `python -m tests.one_step JID`."""

import sys

from tasks import job as path_of_a_job
from tasks.process import PROCESS
from zkstate import jobs


def main() -> None:
    path_of_a_job.run(jobs.ticket(jobs.load(PROCESS.session(), sys.argv[1])))
    PROCESS.drop_session()


if __name__ == "__main__":
    main()
