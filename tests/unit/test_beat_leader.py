import os
import signal
from typing import NoReturn

import pytest

from pipeline.errors import ArklineError, ServiceUnreachable
from tasks import beat_leader, logs


@pytest.mark.parametrize(
    ("error", "code"), [(ServiceUnreachable("silent"), os.EX_TEMPFAIL), (ArklineError("damaged"), 1)]
)
def test_a_beat_asks_to_be_restarted_after_a_silence_of_a_service_alone(
    monkeypatch: pytest.MonkeyPatch, error: ArklineError, code: int
) -> None:
    def connect(_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(beat_leader, "connect", connect)
    monkeypatch.setattr(logs, "configure", lambda _: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    assert beat_leader.main() == code
