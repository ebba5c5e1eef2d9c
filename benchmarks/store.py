"""Processing, which stores an object: one large file, and many small files.

The large file (`ARKLINE_BENCH_MIB`, 256; the goal is for 1,024) is compared with a copy that is synced and
then read for its sha512. The small ones (`ARKLINE_BENCH_FILES`, 2,000 of 10,000 bytes) are compared with
bagit, which makes a bag of them with sha512. bagit renames files, and neither copies nor syncs them. So a
third side measures the lower bound of a step that does: cp, one sync, and sha512 of the copies, read from the
disk. `ratio` and `goal` are those of the large file; `met` needs both.
"""

import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from statistics import median

import bagit

from benchmarks._deposits import Deposits
from benchmarks._floors import copy_and_read_back, place_apart
from benchmarks._machine import host
from benchmarks._output import report, run
from benchmarks._source import serving
from benchmarks._spent import Spent, a_second, medians, ratios, spent
from benchmarks.bytes import MIB, ROUNDS, random_file
from benchmarks.small_files import FILES
from pipeline.records import Job

LARGE_GOAL = 0.8
SMALL_GOAL = 1.0


def copy_and_sha512(source: Path, target: Path) -> None:
    subprocess.run(("cp", str(source), str(target)), check=True)
    subprocess.run(("sync", str(target)), check=True)
    with target.open("rb") as file:
        hashlib.file_digest(file, "sha512")


def large_round(deposits: Deposits, job: Job, folder: Path) -> tuple[Spent, Spent]:
    """The costs of the copy and the step."""
    deposits.download(job)
    (source,) = deposits.folder_of(job).iterdir()
    beside = spent(lambda: copy_and_sha512(source, folder / f"{job.jid}-copy"))
    os.sync()
    own = deposits.process(job)
    return beside, own


def small_round(deposits: Deposits, job: Job, folder: Path) -> tuple[Spent, Spent, Spent]:
    """The costs of bagit, the lower bound and the step."""
    deposits.download(job)
    bag = folder / f"{job.jid}-bag"
    shutil.copytree(deposits.folder_of(job), bag)
    os.sync()
    beside = spent(lambda: bagit.make_bag(str(bag), checksums=["sha512"], processes=1))
    os.sync()
    floor = spent(lambda: copy_and_read_back(deposits.folder_of(job), folder / f"{job.jid}-copy"))
    os.sync()
    own = deposits.process(job)
    return beside, floor, own


def main() -> None:
    logging.getLogger("bagit").setLevel(logging.CRITICAL)
    large, small = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        place_apart(folder)
        source_folder = folder / "source"
        source_folder.mkdir()
        random_file(source_folder / "large", MIB)
        deposits = Deposits(folder)
        with serving(source_folder) as url:
            small_round(deposits, deposits.small_files(url, 20), folder)
            for _ in range(ROUNDS):
                large.append(large_round(deposits, deposits.one_file(f"{url}/large", MIB << 20), folder))
                small.append(small_round(deposits, deposits.small_files(url, FILES), folder))
    copied, stored_large = zip(*large, strict=True)
    bagged, floors, stored = zip(*small, strict=True)
    large_ratios, small_ratios = ratios(copied, stored_large), ratios(bagged, stored)
    report(
        "store",
        large_ratios,
        LARGE_GOAL,
        median(large_ratios) >= LARGE_GOAL and median(small_ratios) >= SMALL_GOAL,
        {
            "mebibytes": MIB,
            **medians("large_processing", stored_large),
            **medians("large_copy_sync_sha512", copied),
            "files": FILES,
            "small_ratio": round(median(small_ratios), 3),
            "small_ratio_range": [round(min(small_ratios), 3), round(max(small_ratios), 3)],
            "small_goal": SMALL_GOAL,
            "small_stored_a_second": a_second(FILES, stored),
            "small_bagit_a_second": a_second(FILES, bagged),
            "small_floor_a_second": a_second(FILES, floors),
            "small_floor_ratio": round(median(ratios(bagged, floors)), 3),
            **medians("small_processing", stored),
            **medians("small_bagit", bagged),
            **medians("small_floor", floors),
            **host(),
        },
    )


if __name__ == "__main__":
    run(main, __doc__)
