"""The images of a run: ours, built by the project's Dockerfile, and stand-ins for those of others.

A stand-in is made of Debian's packages and obeys the variables, users and volumes that docker-compose.yml
gives the real image. It shows what the file does, not what the real server does.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tools.command_line import say
from tools.containers.engine import CannotRun, Engine
from tools.package_index import system_bundle

SUITE = "bookworm"
DEBIAN = f"localhost/arkline-debian:{SUITE}"

RECIPES = Path(__file__).parent / "images"

STAND_INS = {
    "ARKLINE_BASE_IMAGE": ("python", "python3"),
    "ARKLINE_ZOOKEEPER_IMAGE": ("zookeeper", "libzookeeper-java"),
    "ARKLINE_REDIS_IMAGE": ("valkey", "redis-server"),
    "ARKLINE_POSTGRESQL_IMAGE": ("postgres", "postgresql"),
}
"""Variable of docker-compose.yml -> recipe, and the package whose version is printed."""


def stand_ins(engine: Engine) -> tuple[dict[str, str], dict[str, str]]:
    """The images by variable, and the version of the package in each image by recipe."""
    images, versions = {}, {}
    for variable, (recipe, package) in STAND_INS.items():
        images[variable] = _stand_in(engine, recipe)
        shown = engine.run(
            "podman",
            "run",
            "--rm",
            "--network",
            "none",
            "--entrypoint",
            "dpkg-query",
            images[variable],
            "-Wf",
            "${Version}",
            package,
        )
        versions[recipe] = f"{package} {shown.strip()}"
    return images, versions


def build(engine: Engine, checkout: Path, tag: str, images: Mapping[str, str]) -> None:
    """Build the image of a checkout by its own Dockerfile, on the stand-in for Python."""
    say(f"building {tag} by {checkout.name}/Dockerfile")
    base = images["ARKLINE_BASE_IMAGE"]
    engine.run(
        "podman", "build", "--quiet", "--network", "host", "--build-arg", f"BASE_IMAGE={base}", "--tag", tag,
        str(checkout),
    )  # fmt: skip


def _stand_in(engine: Engine, recipe: str) -> str:
    tag = f"localhost/arkline-stand-in-{recipe}:{SUITE}"
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        shutil.copytree(RECIPES, context, dirs_exist_ok=True)
        bundle = system_bundle()
        (context / "ca-certificates.crt").write_bytes(bundle.read_bytes() if bundle else b"")
        if not engine.succeeds("podman", "image", "exists", tag):
            say(f"making the stand-in for {recipe}")
        engine.run(
            "podman", "build", "--quiet", "--layers", "--network", "host",
            "--build-arg", f"DEBIAN={_debian(engine)}", "--tag", tag,
            "--file", str(context / f"{recipe}.Containerfile"), folder,
        )  # fmt: skip
    return tag


def _debian(engine: Engine) -> str:
    """The smallest Debian, from the package source of this machine."""
    if engine.succeeds("podman", "image", "exists", DEBIAN):
        return DEBIAN
    say(f"making {DEBIAN} with debootstrap: about a minute")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        command = [
            "debootstrap",
            "--variant=minbase",
            "--include=ca-certificates",
            SUITE,
            str(root),
            _source(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotRun(f"debootstrap made no Debian: {done.stdout.strip().splitlines()[-1:]}")
        archive = Path(folder) / "root.tar"
        engine.run(
            "tar",
            "--create",
            "--exclude=./var/cache/apt/archives/*.deb",
            "--file",
            str(archive),
            "--directory",
            str(root),
            ".",
        )
        engine.run("podman", "import", str(archive), DEBIAN)
    return DEBIAN


def _source() -> str:
    """Where apt gets the suite's packages on this machine."""
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    sources = [line.split()[1] for line in listed.splitlines() if line.split()[:1] == [SUITE]]
    if not sources:
        raise CannotRun(f"apt of this machine has no packages of {SUITE}")
    return sources[0]
