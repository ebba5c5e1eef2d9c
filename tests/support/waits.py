"""What records that were handed back wait for."""

from pipeline.outcome import WaitKind, WaitsFor

RETRY = WaitsFor(kind=WaitKind.RETRY)
HOST = WaitsFor(kind=WaitKind.HOST)
OBJECT = WaitsFor(kind=WaitKind.OBJECT)
RECORD = WaitsFor(kind=WaitKind.RECORD)
CHECK = WaitsFor(kind=WaitKind.CHECK, name="clamav")
