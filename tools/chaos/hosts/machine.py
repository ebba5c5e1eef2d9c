"""Whether this machine can run hosts in namespaces, and the run's own namespaces."""

import os
import shutil
import subprocess
import sys
from ctypes.util import find_library
from importlib.util import find_spec
from pathlib import Path

from tests.servers.postgresql import DEBIAN
from tools.chaos.clocks import has_faketime
from tools.chaos.small_disks import ENTERED

PROGRAMS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "losetup": "mount",
    "mkfs.ext4": "e2fsprogs",
    "ip": "iproute2",
    "iptables": "iptables",
}
"""Program -> Debian's package."""

_TRIAL = """
set -e
ip link set lo up
ip link add trial type veth peer name trial2
iptables -A INPUT -i trial -p tcp -m multiport --dports 1,2 -j DROP
iptables -A OUTPUT -o trial -m statistic --mode random --probability 0.2 -j DROP
iptables -A OUTPUT -o trial -j NFQUEUE --queue-num 0 --queue-bypass
losetup --find
"""


def why_not() -> str:
    """The reason why this machine cannot run hosts; empty if it can."""
    return _missing() or _refused()


def _missing() -> str:
    if sys.platform != "linux":
        return "hosts need the namespaces of Linux"
    if os.geteuid() != 0:
        return "hosts need root, for loop devices and file systems"
    if absent := [name for name in PROGRAMS if shutil.which(name) is None]:
        packages = " ".join(sorted({PROGRAMS[name] for name in absent}))
        return f"{', '.join(absent)} missing: apt-get install {packages}"
    if find_spec("mfusepy") is None or find_library("fuse3") is None:
        return "mfusepy or libfuse is missing: pip install mfusepy; apt-get install libfuse3-3"
    if not any(DEBIAN.glob("*/bin/initdb")):
        return "PostgreSQL is missing: apt-get install postgresql"
    return "" if has_faketime() else "libfaketime is missing: apt-get install libfaketime"


def _refused() -> str:
    if not Path("/dev/fuse").exists():
        return "there is no /dev/fuse"
    tried = subprocess.run(
        ("unshare", "--mount", "--net", "--uts", "sh", "-c", _TRIAL),
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if tried.returncode == 0 else f"namespaces are refused: {tried.stderr.strip()[-300:]}"


def enter(module: str) -> None:
    """Restart this program, `python -m MODULE`, in its own mount and network namespaces.

    Call once `why_not` is empty.
    """
    if ENTERED not in os.environ:
        command = ("unshare", "--mount", "--net", "--", sys.executable, "-m", module, *sys.argv[1:])
        os.execvpe(command[0], command, {**os.environ, ENTERED: "yes"})
