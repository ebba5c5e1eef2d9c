"""Checks as the conformance suite gets them: a class, a program, and one that misses its sample."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

from pipeline.checks import CheckRule, CheckVerdict
from plugins.conformance.subjects import CheckSubject, Sample

TEMPLATE = Path(__file__).parents[2] / "examples" / "guest"
KEY = b"-----BEGIN RSA PRIVATE" + b" KEY-----\n"
PROGRAM = 'test -r "$0" || exit 2; head -c 1 "$0" | grep -q "^[0-9]" && exit 1; exit 0'


def private_keys() -> CheckSubject:
    sys.path.insert(0, str(TEMPLATE))
    kind = importlib.import_module("archive_guest.private_keys").PrivateKeyCheck
    samples = Sample(KEY, CheckVerdict.FOUND, "private-key"), Sample(b"no key", CheckVerdict.FINE)
    return CheckSubject(CheckRule(name="private-keys"), samples, check=kind)


def program() -> CheckSubject:
    """A text that begins with a digit is found."""
    samples = Sample(b"1 is a digit\n", CheckVerdict.FOUND), Sample(b"one is none\n", CheckVerdict.FINE)
    return CheckSubject(CheckRule(name="digits", command=("/bin/sh", "-c", PROGRAM, "{file}")), samples)


def blind() -> CheckSubject:
    return replace(private_keys(), samples=(Sample(b"another secret", CheckVerdict.FOUND),))
