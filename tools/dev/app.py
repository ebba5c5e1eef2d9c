"""The commands of `./dev`; exit codes: 0 done, 1 failed, 2 wrong usage, 3 something is missing."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from entrypoints.cli import exit_codes
from entrypoints.cli.commands import standalone_command
from entrypoints.stack.services import StackConfig
from pipeline.errors import ArklineError
from tools.checkout import PROJECT, VAR, own_profiles, stop_command
from tools.demo import picture
from tools.demo.run import demonstrate
from tools.dev import audit, benches, checks, fuzz, lock, release
from tools.dev.console import teller

app = typer.Typer(
    name="./dev",
    help="Start, try, test and check arkline in this checkout. Missing packages and programs are installed.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
console = Console(stderr=True, highlight=False, soft_wrap=True)

A_CORE, MOST_PROCESSES = 2, 6

Home = Annotated[Path, typer.Option(help="The folder of the stack.")]


@app.command(epilog="Example: ./dev demo --json | tail -n 1")
def demo(
    json: Annotated[
        bool, typer.Option("--json", help="End with one JSON object on standard output.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the stack running until Ctrl-C.")] = False,
    home: Home = VAR / "demo",
) -> None:
    """Ingest a sample collection through the real stack: ZooKeeper, Redis, workers, beats and Flower."""
    raise typer.Exit(demonstrate(home, as_json=json, keep=keep))


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    epilog="Example: ./dev test tests/unit -k manifest",
)
def test(context: typer.Context) -> None:
    """Run the tests in several processes; arguments go to pytest (-n 0: one process)."""
    os.chdir(PROJECT)
    spread = spread_over(os.cpu_count() or 1, context.args)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *spread, *context.args])  # noqa: S606 - no shell


def spread_over(cores: int, arguments: Sequence[str]) -> tuple[str, ...]:
    """Pytest's options for several processes; none if the arguments set the number or need one process.

    A process starts its own servers and workers, which mostly wait: two for each core.
    """
    if any(
        argument.startswith(("-n", "--numprocesses", "--pdb", "--collect-only")) for argument in arguments
    ):
        return ()
    return ("-n", str(min(A_CORE * cores, MOST_PROCESSES)), "--dist", "worksteal")


@app.command(epilog="Example: ./dev up --detach && . var/run/environment && arkline status")
def up(
    detach: Annotated[bool, typer.Option("--detach", help="Return when every service is ready.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
    concurrency: Annotated[int, typer.Option(min=1, help="Jobs that a worker runs at the same time.")] = 2,
    home: Home = VAR,
) -> None:
    """Start ZooKeeper, Redis, workers, beats, pages and Flower, and print their addresses.

    Ctrl-C stops them. `arkline standalone start` with the folder var and the profiles of this checkout.
    """
    config = StackConfig(
        home=home.absolute(),
        workers=workers,
        concurrency=concurrency,
        environment=own_profiles(),
        stop_command=stop_command(home.absolute()),
    )
    standalone_command.run(config, detach=detach)


@app.command(epilog="Example: ./dev down")
def down(home: Home = VAR) -> None:
    """Stop the stack of this checkout in order; running steps are finished or handed back."""
    standalone_command.end(home.absolute())


@app.command(epilog="Example: ./dev check --fix")
def check(
    fix: Annotated[bool, typer.Option("--fix", help="Format, and apply the fixes of the linter.")] = False,
) -> None:
    """Format, lint, types, imports, the compose file, the lock files, and no secrets in the tree."""
    raise typer.Exit(checks.check(fix, console))


@app.command(
    epilog="Example: ./dev bench moves --json",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def bench(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The NAME of benchmarks/NAME.py; without: all.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Figures as JSON, one line per benchmark.")] = False,
) -> None:
    """Run benchmarks on this machine. Further arguments go to the benchmark: NAME --help describes it."""
    if name == "--help":
        print(context.get_help())
        return
    raise typer.Exit(benches.bench(name, context.args, json, console))


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def chaos(context: typer.Context) -> None:
    """Inject faults into a whole repository, and check that no object is lost or doubled."""
    _become("tools.chaos", context.args)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def simulate(context: typer.Context) -> None:
    """Replay histories of the real code in a simulated world, by their seeds."""
    _become("tools.simulation", context.args)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def storm(context: typer.Context) -> None:
    """Submit hostile deposits among honest ones, and check that only the hostile ones fail."""
    _become("tools.storm", context.args)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def load(context: typer.Context) -> None:
    """Send one depositor's worst to the web process, and measure what 20 others notice."""
    _become("tools.storm.load", context.args)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def containers(context: typer.Context) -> None:
    """Run the image and the compose file on podman: deposit, kill, restart, restore; and take all down."""
    _become("tools.containers", context.args)


def _become(module: str, arguments: Sequence[str]) -> None:
    """Run a tool in this process's place: it starts processes, and needs a main thread of its own."""
    path = os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH"))))
    options = [sys.executable, "-W", "ignore", "-m", module, *arguments]
    os.execve(sys.executable, options, os.environ | {"PYTHONPATH": path})  # noqa: S606 - no shell


@app.command("fuzz", epilog="Example: ./dev fuzz --minutes 30 --seed 7")
def fuzz_(
    minutes: Annotated[float, typer.Option(min=0, help="Rounds begin as long as this.")] = 10,
    seed: Annotated[int, typer.Option(help="Of the first round; each further one adds 1.")] = 1,
) -> None:
    """Try the readers of foreign bytes, and every other property, with many more examples."""
    raise typer.Exit(fuzz.fuzz(minutes, seed, console))


@app.command("audit", epilog="Example: ./dev audit")
def audit_() -> None:
    """Ask the package index for known faults of the locked packages; skipped where no network allows it."""
    raise typer.Exit(audit.audit(console))


@app.command("record", epilog="Example: ./dev record")
def record_(
    target: Annotated[Path, typer.Option(help="The file to write.")] = picture.PICTURE,
) -> None:
    """Run a session against a real stack, and draw it as an SVG for the README."""
    picture.record(target.absolute(), teller(console))


@app.command("lock", epilog="Example: ./dev lock")
def lock_() -> None:
    """Update requirements.lock from pyproject.toml."""
    raise typer.Exit(lock.lock(console))


@app.command("release", epilog="Example: ./dev release --tag")
def release_(
    tag: Annotated[
        bool, typer.Option("--tag", help="Also tag this commit with the changelog's section.")
    ] = False,
    target: Annotated[Path, typer.Option(help="The folder for the wheel and the source archive.")] = VAR
    / "dist",
) -> None:
    """Build the wheel, and check it in an empty environment outside the checkout with a stack of its own."""
    release.release(target.absolute(), tag=tag, console=console)


def main() -> None:
    try:
        app(prog_name="./dev")
    except ArklineError as error:
        console.print(f"[bold red]error:[/] {error}", markup=True)
        sys.exit(exit_codes.of_error(error))
