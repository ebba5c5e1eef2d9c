"""TLS between the containers: what each server presents, what it refuses, and a renewal while all works."""

import json

from tools.containers.engine import until
from tools.containers.steps import deposit
from tools.containers.story import StepFailed, Story

RENEWED_TIMEOUT = 120
"""Seconds until a server presents a renewed certificate; serve.sh looks every 30."""

PORTS = {"zookeeper": 2281, "redis": 6379, "postgresql": 5432}

RELOADS = ("redis", "postgresql")
"""Servers that take a renewed certificate while they run; the ZooKeeper of Debian 12 is too old for it."""

PRESENTED = """
import json, socket, ssl, sys
name, port = sys.argv[1], int(sys.argv[2])
clear, connection = (socket.create_connection((name, port), timeout=10) for _ in range(2))
if name == "postgresql":  # its protocol begins in clear text with a request for TLS
    connection.sendall((8).to_bytes(4, "big") + (80877103).to_bytes(4, "big"))
    assert connection.recv(1) == b"S"
    question = b"user\\0arkline\\0database\\0arkline\\0\\0"
    clear.sendall((len(question) + 8).to_bytes(4, "big") + (196608).to_bytes(4, "big") + question)
else:
    clear.sendall({"zookeeper": b"srvr\\n", "redis": b"PING\\r\\n"}[name])
clear.settimeout(10)
try:
    answer = clear.recv(100).decode(errors="replace")
except ConnectionResetError:
    answer = ""
trust = ssl.create_default_context(cafile="/run/trust/authority.pem")
with trust.wrap_socket(connection, server_hostname=name) as encrypted:
    serial = encrypted.getpeercert()["serialNumber"]
print(json.dumps([serial, answer]))
"""
"""Run in a container that trusts the authority: the serial number of the certificate, checked with the name
of the server, and what the server answers without TLS."""

REFUSALS = {"zookeeper": "", "redis": "", "postgresql": "no pg_hba.conf entry"}
"""Server -> what its answer without TLS has in it; nothing, where the connection is closed."""


def encrypted(story: Story) -> None:
    """Servers present their certificates, refuse clear text, and take renewed certificates at work."""
    servers = [name for name in PORTS if name in story.project.services]
    before = {name: _serial(story, name) for name in servers}
    story.project.execute(
        "certificates", "arkline", "certificates", "renew", "/secrets/certificates", "--now"
    )
    reloading = [name for name in servers if name in RELOADS]
    if not until(lambda: all(_serial(story, name) != before[name] for name in reloading), RENEWED_TIMEOUT):
        raise StepFailed(f"{', '.join(reloading)}: no renewed certificate after {RENEWED_TIMEOUT} s")
    deposit(story)


def _serial(story: Story, name: str) -> str:
    """The serial number of a server's certificate; StepFailed if the server speaks without TLS."""
    serial, answer = json.loads(
        story.project.execute("web", "python", "-c", PRESENTED, name, str(PORTS[name]))
    )
    expected = REFUSALS[name]
    if (expected not in answer) if expected else answer.isprintable() and answer:
        raise StepFailed(f"{name} answers without TLS: {answer!r}")
    return str(serial)
