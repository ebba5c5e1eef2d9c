"""A stack that `./dev up` starts, and a shell that has read its environment file, as the docs say."""

import os
import re
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from entrypoints.stack.home import StackInfo, environment_path, read_info
from pipeline.settings import Settings
from tests.servers.http_source import HttpSource
from tests.support.command_forks import CAN_START, forks

PROJECT = Path(__file__).parents[2]
FORKED = Path(__file__).with_name("forked_command.py")
HARBOUR = PROJECT / "examples" / "harbour" / "lighthouse"

COMMAND_SECONDS = 120


@dataclass
class Shell:
    """A bash that has read the environment file of the stack, in the reader's folder."""

    process: subprocess.Popen[str]
    said: str = ""
    """The output of the last command, that of standard error included."""

    def run(self, command: str) -> int:
        """Run the command to its end; its exit code."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\nprintf '\\n=ended= %s\\n' $?\n")
        self.process.stdin.flush()
        self.said = ""
        deadline = time.monotonic() + COMMAND_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not (ended := re.search(r"\n=ended= (\d+)\n$", self.said)):
                assert selector.select(max(0, deadline - time.monotonic())), f"{command}: {self.said}"
                data = os.read(self.process.stdout.fileno(), 1 << 16).decode()
                assert data, f"{command} ended the shell: {self.said}"
                self.said += data
        self.said = self.said[: ended.start()]
        return int(ended[1])


@dataclass(frozen=True)
class Site:
    """The stack, a folder with what a reader has, and a server with what is on the web."""

    info: StackInfo
    home: Path
    folder: Path
    source: HttpSource
    said: str
    """What the command that started it has printed."""

    @property
    def settings(self) -> Settings:
        given = self.info.environment.items()
        return Settings.model_validate(
            {name.removeprefix("ARKLINE_").lower(): value for name, value in given}
        )

    @contextmanager
    def shell(self) -> Iterator[Shell]:
        path = os.pathsep.join((str(self.folder / "bin"), os.environ["PATH"]))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ARKLINE_")}
        with subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self.folder,
            env={**kept, "PATH": path, "CURL_HOME": str(self.folder), "NO_PROXY": "127.0.0.1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=[forks().fileno()],
        ) as process:
            try:
                shell = Shell(process)
                assert shell.run(f". {environment_path(self.home)}") == 0
                yield shell
            finally:
                process.kill()


def write_folder(folder: Path, source: HttpSource) -> None:
    """What the pages take for granted: a reader's files, and files on the web."""
    shutil.copytree(HARBOUR, folder / "examples" / "harbour" / "lighthouse")
    shutil.copytree(HARBOUR, folder / "photos", ignore=shutil.ignore_patterns("*.checkm"))
    shutil.copytree(folder / "photos", folder / "three")
    for name in ("photo.tif", "South light.jpg"):
        shutil.copy(HARBOUR / "light.svg", folder / name)
    shutil.copytree(PROJECT / "examples" / "profiles", folder / "profiles")
    for file in (folder / "photos").iterdir():
        source.put(f"/{file.name}", file)
    packed = shutil.make_archive(str(folder / "harbour"), "zip", folder / "photos")
    source.put("/harbour.zip", Path(packed))
    listed = (HARBOUR / "object.checkm").read_text().replace("{base}/lighthouse", source.url(""))
    source.put("/photos.checkm", listed.encode())
    (folder / ".curlrc").write_text("fail-with-body\nmax-time = 60\n")  # an error of HTTP is one of curl
    (folder / "bin").mkdir()
    for name in ("arkline", "celery"):
        program = folder / "bin" / name
        program.write_text(
            "\n".join(("#!/bin/sh", *forked(name), f'exec {sys.executable} -P -m {name} "$@"', ""))
        )
        program.chmod(0o755)


def forked(name: str) -> tuple[str, ...]:
    """The lines of a program that have its short commands run by processes which are forked, as those of
    tests/support/cli.py are."""
    if name != "arkline" or not CAN_START:
        return ()
    command = f'exec {sys.executable} -I -S {FORKED} {forks().fileno()} "$@"'
    return ('case "$1" in', "worker | beat) ;;", f"*) {command} ;;", "esac")


def dev(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.dev", *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, env=environment, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=280
    )


@contextmanager
def started(place: Path) -> Iterator[Site]:
    home, folder = place / "var", place / "reader"
    folder.mkdir()
    with HttpSource() as source:
        write_folder(folder, source)
        try:
            up = dev(
                *("up", "--detach", f"--home={home}"),
                ARKLINE_ALLOW_NETWORKS="127.0.0.0/8",
                ARKLINE_PROFILES=str(folder / "profiles"),
            )
            assert up.returncode == 0, up.stderr
            info = read_info(home)
            assert info is not None
            yield Site(info, home, folder, source, up.stdout)
        finally:
            dev("down", f"--home={home}")
