"""Downloading one large file, compared with curl followed by sha512 of the result.

`ARKLINE_BENCH_MIB` (256): the size of the file; the goal is for 1,024. The step runs in this process, with a
source in another. Both sides end with the file and its sha512; the step has also synced the file.
"""

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from statistics import median

from benchmarks._deposits import Deposits
from benchmarks._machine import host
from benchmarks._output import report, run
from benchmarks._source import serving
from benchmarks._spent import medians, ratios, spent

MIB = int(os.environ.get("ARKLINE_BENCH_MIB", "256"))
ROUNDS = int(os.environ.get("ARKLINE_BENCH_ROUNDS", "3"))
GOAL = 1.0


def curl_and_sha512(url: str, target: Path) -> None:
    subprocess.run(("curl", "-sS", "--fail", "-o", str(target), url), check=True)
    with target.open("rb") as file:
        hashlib.file_digest(file, "sha512")


def random_file(path: Path, mebibytes: int) -> None:
    piece = os.urandom(1 << 20)
    with path.open("wb") as file:
        for number in range(mebibytes):
            file.write(number.to_bytes(8, "big") + piece[8:])


def main() -> None:
    rounds = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source_folder = folder / "source"
        source_folder.mkdir()
        random_file(source_folder / "large", MIB)
        random_file(source_folder / "warm", 1)
        deposits = Deposits(folder)
        with serving(source_folder) as url:
            deposits.download(deposits.one_file(f"{url}/warm", 1 << 20))
            for _ in range(ROUNDS):
                deposits.remove()
                beside = spent(lambda: curl_and_sha512(f"{url}/large", folder / "curl"))
                (folder / "curl").unlink()
                os.sync()
                job = deposits.one_file(f"{url}/large", MIB << 20)
                rounds.append((beside, deposits.download(job)))
    curled, own = zip(*rounds, strict=True)
    by_round = ratios(curled, own)
    report(
        "bytes",
        by_round,
        GOAL,
        median(by_round) >= GOAL,
        {
            "mebibytes": MIB,
            **medians("downloading", own),
            **medians("curl_then_sha512", curled),
            **host(),
        },
    )


if __name__ == "__main__":
    run(main, __doc__)
