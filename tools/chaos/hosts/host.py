"""One host: its namespaces, its disk, its storage and the processes on it."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from entrypoints.stack.child import Command, Process
from tests.support.processes import await_ready
from tools.chaos.actors import Actor
from tools.chaos.clocks import Clock
from tools.chaos.hosts import network
from tools.chaos.hosts.throttle import Throttle

DISK_MEGABYTES = 512
"""A sparse file: ZooKeeper alone reserves 64 MB for its log."""

DISK = Path("/mnt")
"""Where each host has its own disk, in its own mount namespace: below no folder that users may not enter."""

SHARED = "shared"
"""The folder of the run with working storage and the storage root, which all hosts share."""

_SHUTDOWN = 0x8004587D
_WITHOUT_LOG = 2
"""EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH: from now on nothing more reaches the disk."""

_BOOT = """
set -e
hostname "$1"
mkdir -p "$2/below"
mount -o loop "$2/disk.img" "$4"
mount --rbind "$3" "$2/below"
touch "$2/up"
exec sleep infinity
"""


class Host:
    """A host; `boot` starts it, `lose_power` ends all that runs on it."""

    def __init__(self, number: int, folder: Path, peers: tuple[str, ...], clock: Clock) -> None:
        self.number = number
        self.name = f"host{number}"
        self.address = network.address_of(number)
        self.folder = folder / "hosts" / str(number)
        self.folder.mkdir(parents=True)
        self.disk = DISK
        self.clock = clock
        self.throttle = Throttle(self.folder / "throttle")
        self.actors: list[Actor] = []
        self.off_until: float | None = None
        """The monotonic time at which the power returns; None while the host is on."""
        self.prepare: Callable[[Host], None] = lambda _: None
        """Called whenever the host has booted."""
        self._run = folder
        self._shared = folder / SHARED
        self._log = folder / "log"
        self._peers = peers
        self._drift: tuple[float, float] | None = None
        self._packets: network.Packets
        argv = ("unshare", "--mount", "--net", "--uts", "--", "sh", "-c", _BOOT, "sh", self.name)
        command = Command(
            name=self.name,
            argv=(*argv, str(self.folder), str(self._shared), str(self.disk)),
            log=self._log / f"{self.name}.log",
            ready_file=self.folder / "up",
        )
        self._holder = Process(command)
        """The process to which the namespaces belong."""
        self._storage: Process | None = None
        self._make_disk()

    def _make_disk(self) -> None:
        image = self.folder / "disk.img"
        with image.open("wb") as file:
            file.truncate(DISK_MEGABYTES << 20)
        network.run("mkfs.ext4", "-q", "-F", str(image))

    @property
    def disk_from_outside(self) -> Path:
        """The same folder, for processes that are not on the host."""
        return Path(f"/proc/{self._holder.pid}/root") / self.disk.relative_to("/")

    @property
    def pid(self) -> int:
        """The process to which the namespaces belong."""
        return self._holder.pid

    @property
    def enter(self) -> tuple[str, ...]:
        """The command line that runs a command on the host."""
        return ("nsenter", "-t", str(self._holder.pid), "-m", "-n", "-u", "--")

    @property
    def packets(self) -> network.Packets:
        return self._packets

    @property
    def is_on(self) -> bool:
        return self.off_until is None

    def boot(self) -> None:
        """Mount the disk and the storage, and connect the host; its actors start with the next poll."""
        self._holder.start()
        await_ready(self._holder, self._holder.command.is_ready)
        network.plug_in(self.number, self._holder.pid)
        self._packets = network.Packets(self.number, self.enter, self._peers)
        program = (sys.executable, "-P", "-m", "tools.chaos.hosts.pass_through")
        below, mount_point = self.folder / "below", self._shared
        self._storage = Process(
            Command(
                name=f"{self.name}-storage",
                argv=(*self.enter, *program, str(below), str(mount_point), str(self.folder / "throttle")),
                log=self._log / f"{self.name}-storage.log",
                environment={"PYTHONPATH": str(network.PROJECT)},
            )
        )
        self._storage.start()
        await_ready(self._storage, self._storage_is_there)
        self.off_until = None
        self.prepare(self)

    def _storage_is_there(self) -> bool:
        try:
            mounts = Path(f"/proc/{self._holder.pid}/mounts").read_text()
        except OSError:
            return False
        return f" {self._shared} fuse" in mounts

    def lose_power(self, seconds: float) -> None:
        """Kill everything at once; the disk keeps only what was synced. `poll` boots it after `seconds`."""
        network.unplug(self.number)
        self._kill_all()
        self._keep_synced()
        self._holder.kill()
        for actor in self.actors:
            actor.process.wait()
        if self._storage is not None:
            self._storage.wait()
        self.clock.set(0)
        self._drift = None
        self.throttle.clear()
        self.off_until = time.monotonic() + seconds

    def _kill_all(self) -> None:
        while pids := self.pids():  # a process may have had a child since the last look
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def pids(self) -> list[int]:
        """All processes on the host but the one that holds its namespaces."""
        own = Path(f"/proc/{self._holder.pid}/ns/net").stat().st_ino
        pids = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self._holder.pid:
                with suppress(OSError):
                    if (entry / "ns" / "net").stat().st_ino == own:
                        pids.append(int(entry.name))
        return pids

    def _keep_synced(self) -> None:
        """Replace the disk by a copy of this moment: what was only in memory is lost."""
        descriptor = os.open(self.disk_from_outside, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, _WITHOUT_LOG.to_bytes(4, sys.byteorder))
        finally:
            os.close(descriptor)
        image, copy = self.folder / "disk.img", self.folder / "copy.img"
        network.run("cp", "--sparse=always", str(image), str(copy))
        copy.replace(image)

    def drift(self, rate: float) -> None:
        """From now on the clock of this host's processes gains `rate` seconds per second."""
        self._drift = (time.monotonic(), rate)

    def end_drift(self) -> None:
        """Set the clock right at once, as a time server does."""
        self._drift = None
        self.clock.set(0)

    def poll(self) -> None:
        """Restart dead processes, or the whole host when its power returns."""
        if self.off_until is not None:
            if time.monotonic() >= self.off_until:
                self.boot()
            return
        if self._drift is not None:
            began, rate = self._drift
            self.clock.set(int(rate * (time.monotonic() - began)))

    def heal(self) -> None:
        """End every trouble; a host without power boots with the next poll."""
        self.throttle.clear()
        self.end_drift()
        if self.is_on:
            self.packets.clear()
        else:
            self.off_until = time.monotonic()

    def stop(self) -> None:
        """End everything on this host at once."""
        if self._holder.running:
            self._kill_all()
        self._holder.kill()
        for process in [actor.process for actor in self.actors] + ([self._storage] if self._storage else []):
            process.wait()


class HostActor(Actor):
    """A process on a host: started in the host's namespaces, and not while the host is off."""

    def __init__(self, host: Host, command: Command) -> None:
        super().__init__(command)
        self._host = host
        self._command = command
        host.actors.append(self)

    def start(self) -> None:
        self.process.command = replace(self._command, argv=(*self._host.enter, *self._command.argv))
        super().start()

    def poll(self) -> None:
        if self._host.is_on:
            super().poll()


def on_disk(host: Host, script: str, *arguments: str) -> None:
    """Run a shell script on the host."""
    subprocess.run((*host.enter, "sh", "-euc", script, "sh", *arguments), check=True, capture_output=True)
