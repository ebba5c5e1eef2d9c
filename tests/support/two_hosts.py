"""What two hosts in namespaces do, as one JSON object: run in own mount and network namespaces.

`unshare --mount --net -- python -m tests.support.two_hosts FOLDER`; without namespaces of its own the program
would change the machine's network.
"""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.support.polling import eventually
from tools.chaos.hosts import network
from tools.chaos.hosts.host import SHARED, Host, on_disk
from tools.chaos.hosts.host_cluster import booted
from tools.chaos.hosts.throttle import Trouble

_SERVE = "import socket as s; l = s.create_server(('{}', 9))\nwhile True: l.accept()[0].sendall(b'x')"
_ASK = "import socket as s; print(s.create_connection(('{}', 9), timeout=1).recv(1))"
DELAY = 0.2


def said(host: Host, *argv: str) -> str:
    """What a command prints on the host, or its error's last line."""
    done = subprocess.run((*host.enter, *argv), capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip().rpartition("\n")[2]


def network_facts(one: Host, two: Host, log: Path) -> dict[str, object]:
    serving = subprocess.Popen((*one.enter, sys.executable, "-c", _SERVE.format(one.address)))
    ask = (sys.executable, "-c", _ASK.format(one.address))
    eventually(lambda: said(two, *ask) == "b'x'")
    facts: dict[str, object] = {}
    one.packets.lose_one_way(incoming=True)
    facts["heard while the host hears nothing"] = said(two, *ask)
    one.packets.clear()
    one.packets.lose_ports(9)
    facts["heard behind a partition of the port"] = said(two, *ask)
    one.packets.clear()
    one.packets.hold_back(DELAY, log)
    eventually(lambda: connect_seconds(two, one.address) > DELAY)
    facts["seconds of a delayed connection"] = connect_seconds(two, one.address)
    one.packets.clear()
    # the quickest of several, as a loaded machine delays single ones
    facts["seconds of a connection"] = min(connect_seconds(two, one.address) for _ in range(20))
    serving.kill()
    serving.wait()
    return facts


def connect_seconds(host: Host, address: str) -> float:
    began = time.monotonic()
    with network.inside(host.pid), socket.create_connection((address, 9), timeout=5) as connection:
        connection.recv(1)
    return time.monotonic() - began


def storage_facts(one: Host, two: Host, shared: Path) -> dict[str, object]:
    file, lock = str(shared / "file"), str(shared / "lock")
    on_disk(one, 'echo written > "$1"', file)
    facts: dict[str, object] = {"read by the other host": said(two, "cat", file)}
    facts["a file created twice"] = said(two, "sh", "-Cc", f"echo again > {file} && echo created")
    holding = subprocess.Popen(
        (*one.enter, "flock", lock, "sh", "-c", "echo held; cat"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holding.stdout is not None
    holding.stdout.readline()
    facts["a lock held by the other host"] = said(two, "flock", "-n", lock, "echo", "locked")
    holding.communicate("")
    # the file system hears of the end of the other process a moment later
    facts["a lock that was released"] = said(two, "flock", "-w", "30", lock, "echo", "locked")
    one.throttle.set(Trouble.FAILING, 60)
    facts["read while storage fails"] = said(one, "cat", file)
    facts["read by the other host meanwhile"] = said(two, "cat", file)
    began = time.monotonic()
    one.throttle.set(Trouble.STALLED, 1.0)
    facts["read after a stall"] = said(one, "cat", file)
    facts["seconds of the stall"] = time.monotonic() - began
    return facts


def power_facts(host: Host) -> dict[str, object]:
    disk = host.disk
    on_disk(
        host, 'echo kept > "$1"; sync "$1"; echo lost > "$2"', str(disk / "synced"), str(disk / "unsynced")
    )
    host.lose_power(0)
    host.poll()
    return {
        "synced": said(host, "cat", str(disk / "synced")),
        "unsynced": said(host, "sh", "-c", f"cat {disk / 'unsynced'} 2>&1 | grep -c lost"),
    }


def main(folder: Path) -> None:
    network.make_bridge()
    (folder / SHARED).mkdir(parents=True)
    (folder / "log").mkdir()
    with booted(folder, 2) as (one, two):
        facts = storage_facts(one, two, folder / SHARED)
        facts |= network_facts(one, two, folder / "log" / "relay.log")
        facts |= power_facts(one)
    sys.stdout.write(json.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
