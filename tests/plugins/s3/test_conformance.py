from pathlib import Path

from tests.support.conforming import passed


def test_a_bucket_keeps_the_promises_of_a_storage(tmp_path: Path) -> None:
    assert passed(tmp_path, "--arkline-storage=tests.plugins.s3.conforming:bucket") > 50
