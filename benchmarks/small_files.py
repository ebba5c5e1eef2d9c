"""Downloading many small files of one object, compared with its client alone: libcurl, with digests and sync.

A third side is `curl --parallel`, which computes no digest and syncs nothing.

`ARKLINE_BENCH_FILES` (2,000): files of 10,000 bytes. The step runs in this process, with a source in another.
It checks a declared sha256 and computes sha512 of each file, and ends with all of them on the disk.

No file is removed before the end: ext4 does not reuse the inode of a file removed a moment ago, and its
search for another costs up to 0.6 ms per new file, 30 times the usual time. For the same reason the sides'
folders are placed apart.
"""

import os
import subprocess
import tempfile
from pathlib import Path
from statistics import median

from benchmarks._deposits import Deposits
from benchmarks._floors import fetch_with_libcurl, place_apart
from benchmarks._machine import host
from benchmarks._output import report, run
from benchmarks._source import SMALL, serving
from benchmarks._spent import a_second, medians, ratios, spent

FILES = int(os.environ.get("ARKLINE_BENCH_FILES", "2000"))
ROUNDS = int(os.environ.get("ARKLINE_BENCH_ROUNDS", "3"))
GOAL = 0.8
CONNECTIONS = 8


def curl(source: str, folder: Path) -> None:
    """Fetch all files into the folder with curl."""
    lines = (f"url={source}{SMALL}{number}\noutput={folder}/{number:05}\n" for number in range(FILES))
    folder.mkdir()
    arguments = ("--parallel", "--parallel-max", str(CONNECTIONS), "--no-progress-meter", "--fail")
    subprocess.run(("curl", *arguments, "-K", "-"), input="".join(lines), text=True, check=True)


def main() -> None:
    rounds = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        place_apart(folder)
        deposits = Deposits(folder)
        with serving(folder) as url:
            deposits.download(deposits.small_files(url, 20))
            for number in range(ROUNDS):
                beside = spent(lambda: curl(url, folder / f"curl-{number}"))  # noqa: B023
                client = spent(lambda: fetch_with_libcurl(url, folder / f"client-{number}", FILES))  # noqa: B023
                os.sync()
                rounds.append((beside, client, deposits.download(deposits.small_files(url, FILES))))
    curled, alone, own = zip(*rounds, strict=True)
    by_round = ratios(alone, own)
    by_curl = ratios(curled, own)
    report(
        "small_files",
        by_round,
        GOAL,
        median(by_round) >= GOAL,
        {
            "files": FILES,
            "downloaded_a_second": a_second(FILES, own),
            "curl_parallel_a_second": a_second(FILES, curled),
            "client_alone_a_second": a_second(FILES, alone),
            "by_curl": [round(ratio, 3) for ratio in sorted(by_curl)],
            "client_alone_by_curl": round(median(ratios(curled, alone)), 3),
            **medians("downloading", own),
            **medians("curl_parallel", curled),
            **medians("client_alone", alone),
            **host(),
        },
    )


if __name__ == "__main__":
    run(main, __doc__)
