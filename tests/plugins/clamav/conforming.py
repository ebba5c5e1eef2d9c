"""The virus scan as the conformance suite gets it; ARKLINE_CLAMD says where clamd answers."""

from pipeline.checks import CheckRule, CheckVerdict
from plugins.clamav.samples import eicar, encrypted, nested
from plugins.conformance.subjects import CheckSubject, Sample
from tests.servers import clamd


def scan() -> CheckSubject:
    samples = (
        Sample(eicar(), CheckVerdict.FOUND, clamd.EICAR_NAME),
        Sample(nested(), CheckVerdict.UNCHECKED, "too-large"),
        Sample(encrypted(), CheckVerdict.UNCHECKED, "encrypted"),
        Sample(b"a text", CheckVerdict.FINE),
    )
    return CheckSubject(CheckRule(name="clamav"), samples)
