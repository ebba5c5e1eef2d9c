"""The identification of formats as the conformance suite gets it."""

from pipeline.checks import CheckRule, CheckVerdict
from plugins.conformance.subjects import CheckSubject, Sample


def identification() -> CheckSubject:
    samples = (
        Sample(b"GIF89a\1\0\1\0\0\0\0;", CheckVerdict.FINE, "fmt/4", ".gif"),
        Sample(b"\xff\x00\x01", CheckVerdict.UNCHECKED, "unknown-format"),
    )
    return CheckSubject(
        CheckRule(name="pronom"), samples, never_finds="it names a format, and does not judge"
    )
