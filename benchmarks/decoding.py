"""The cost of decoding in a separate process: a container unpacked there, and in this process.

Each round unpacks the same container both ways. The ratio within the round is the figure.
"""

import io
import os
import tempfile
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks._output import run, tell
from pipeline.attempt import UNATTENDED
from pipeline.containers import unpack
from pipeline.containers.unpack import Limits
from pipeline.decoding import calls
from pipeline.decoding.decoder import Decoder
from pipeline.settings import Settings

ROUNDS = 21
CONTAINERS = {"10_files_of_10_kB": (10, 10_000), "100_files_of_1_MB": (100, 1_000_000)}
LIMITS = Limits(entries=100_000, bytes=1 << 40, ratio=200)

Unpack = Callable[[Path, str, Path, Limits], object]


def unpack_here(path: Path, name: str, target: Path, limits: Limits) -> None:
    list(unpack.unpack(path, name, target, limits, UNATTENDED))


def unpack_there(decoder: Decoder, path: Path, name: str, target: Path, limits: Limits) -> None:
    calls.unpack(decoder, path, name, target, limits, UNATTENDED)


def packed(files: int, size: int) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(files):
            archive.writestr(str(number), os.urandom(size))
    return data.getvalue()


def milliseconds(archive: Path, work: Unpack) -> float:
    with tempfile.TemporaryDirectory(dir=archive.parent) as target:
        start = time.perf_counter()
        work(archive, "a.zip", Path(target), LIMITS)
        return (time.perf_counter() - start) * 1000


def main() -> None:
    decoder = Decoder(Settings())
    result: dict[str, object] = {"rounds": ROUNDS}
    with tempfile.TemporaryDirectory() as name:
        archive = Path(name) / "a.zip"
        for title, (files, size) in CONTAINERS.items():
            archive.write_bytes(packed(files, size))
            there = partial(unpack_there, decoder)
            milliseconds(archive, there)  # starts the server
            rounds = [
                (milliseconds(archive, unpack_here), milliseconds(archive, there)) for _ in range(ROUNDS)
            ]
            ratios = [both[1] / both[0] for both in rounds]
            result |= {
                f"{title}_here_ms_p50": round(median(both[0] for both in rounds), 2),
                f"{title}_there_ms_p50": round(median(both[1] for both in rounds), 2),
                f"{title}_ratio": round(median(ratios), 2),
                f"{title}_ratio_range": [round(min(ratios), 2), round(max(ratios), 2)],
            }
    decoder.close()
    tell(result)


if __name__ == "__main__":
    run(main, __doc__)
