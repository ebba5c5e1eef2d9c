from pathlib import Path

from tests.support.conforming import passed
from tests.support.nightly import often


def test_a_bucket_keeps_the_promises_of_a_storage(tmp_path: Path) -> None:
    every = f"--arkline-every={often(12, 1)}"

    assert passed(tmp_path, "--arkline-storage=tests.plugins.s3.conforming:bucket", every) > 50
