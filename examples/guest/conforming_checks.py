"""The checks as the suite gets them: `pytest --arkline-check=conforming_checks:private_keys`."""

from pathlib import Path

from pipeline.checks import CheckRule, CheckVerdict
from plugins.conformance.subjects import CheckSubject, Sample

PROGRAM = Path(__file__).with_name("has-a-name.sh")


def private_keys() -> CheckSubject:
    key = b"-----BEGIN RSA PRIVATE" + b" KEY-----\n"
    samples = Sample(key, CheckVerdict.FOUND, "private-key"), Sample(b"no key", CheckVerdict.FINE)
    return CheckSubject(CheckRule(name="private-keys"), samples)


def has_a_name() -> CheckSubject:
    rule = CheckRule(name="has-a-name", command=(str(PROGRAM), "{file}"))
    samples = (
        Sample(b"a ferry\n", CheckVerdict.FOUND, "no-name"),
        Sample(b"Name: a ferry\n", CheckVerdict.FINE),
    )
    return CheckSubject(rule, samples)
