"""The images of a run: ours, built by the project's Dockerfile, and stand-ins for those of others.

A stand-in is made of Debian's packages and obeys the variables, users and volumes that docker-compose.yml
gives the real image. It shows what the file does, not what the real server does.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.command_line import say
from tools.containers.engine import CannotRun, Engine, EngineFailed, take_shares
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


OURS = "localhost/arkline-drill:now"


def prepare(engine: Engine, checkout: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The image of each variable of docker-compose.yml, and the versions of what is in them.

    CannotRun if this machine runs no container, or reaches no packages from one; EngineFailed if an image
    cannot be built all the same.
    """
    debian = _debian(engine)
    try:
        engine.run("podman", "run", "--rm", "--network", "host", debian, "true")
    except EngineFailed as error:
        raise CannotRun(f"podman runs no container on this machine: {error}") from error
    take_shares()
    with _reaching(engine, debian, "apt-get update"):
        images = {variable: _stand_in(engine, recipe) for variable, (recipe, _) in STAND_INS.items()}
    base = images["ARKLINE_BASE_IMAGE"]
    with _reaching(engine, base, "pip download --quiet --no-deps --dest /tmp pip"):
        build(engine, checkout, OURS, base)
    versions = {
        recipe: f"{package} {_version(engine, images[variable], package)}"
        for variable, (recipe, package) in STAND_INS.items()
    }
    podman = engine.run("podman", "--version").split()[-1]
    return {**images, "ARKLINE_IMAGE": OURS}, {"podman": podman, **versions}


@contextmanager
def _reaching(engine: Engine, image: str, question: str) -> Iterator[None]:
    """If an image cannot be built, CannotRun where `question` fails too in a container of `image`."""
    try:
        yield
    except EngineFailed as error:
        if engine.succeeds("podman", "run", "--rm", "--network", "host", image, "sh", "-c", question):
            raise
        raise CannotRun(f"a container of this machine reaches no packages: {error}") from error


def _version(engine: Engine, image: str, package: str) -> str:
    asked = ("--entrypoint", "dpkg-query", image, "-Wf", "${Version}", package)
    return engine.run("podman", "run", "--rm", "--network", "none", *asked).strip()


def build(engine: Engine, checkout: Path, tag: str, base: str) -> None:
    """Build the image of a checkout by its own Dockerfile, whose first stage begins with `base`."""
    engine.run("podman", "build", "--quiet", "--network", "host", "--from", base, "--tag", tag, str(checkout))


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
