"""Digests of a large stream, computed in a thread of their own while the next bytes arrive."""

import threading
from collections.abc import Iterable
from queue import Queue

from pipeline.fixity import OF_RECORD, READ_CHUNK, Digest, Digester

PIECES_AHEAD = 16
"""Pieces that wait for the thread at most, of READ_CHUNK bytes at most."""


class StreamDigester:
    """As Digester. The thread starts once the stream has READ_CHUNK bytes: a small file is not worth one.

    One thread calls it. `finish` it: no thread outlives its download.
    """

    def __init__(self, algorithms: Iterable[str] = (OF_RECORD,)) -> None:
        self._digester = Digester(algorithms)
        self._thread: threading.Thread | None = None
        self.size = 0

    def update(self, data: bytes) -> None:
        self.size += len(data)
        if self.size <= READ_CHUNK:
            self._digester.update(data)
            return
        if self._thread is None:
            self._waiting: Queue[bytes | None] = Queue(PIECES_AHEAD)
            self._thread = threading.Thread(target=self._work, name="digests of a download", daemon=True)
            self._thread.start()
        self._waiting.put(data)

    def finish(self) -> None:
        """Return once all pieces are in the digests; more may follow."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def value(self, name: str = OF_RECORD) -> str:
        self.finish()
        return self._digester.value(name)

    def check(self, declared: Digest, name: str) -> None:
        """As Digester.check."""
        self.finish()
        self._digester.check(declared, name)

    def _work(self) -> None:
        while (data := self._waiting.get()) is not None:
            self._digester.update(data)
