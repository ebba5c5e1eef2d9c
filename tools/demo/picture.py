"""`./dev record`: run a session against a real stack, and draw it as an SVG for the README."""

import io
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

from entrypoints.stack.stack import running
from entrypoints.stack.supervisor import stop_signals
from pipeline.fixity import digest_file
from tools.checkout import PROJECT
from tools.demo import collection
from tools.demo.run import HARBOUR, Session, demo_config
from tools.web_server import serving

PICTURE = PROJECT / "docs" / "session.svg"
WIDTH = 100
"""Columns: the most that the README shows without scaling the text down too far."""


def record(target: Path, say: Callable[[str], None]) -> None:
    """Ingest the sample collection and a file with a wrong digest, look at both, and draw the session."""
    console = Console(record=True, width=WIDTH, force_terminal=True, file=io.StringIO(), highlight=False)
    with (
        tempfile.TemporaryDirectory(prefix="arkline-record-") as name,
        stop_signals() as signals,
        serving(Path(name) / "source") as base,
    ):
        source = Path(name) / "source"
        collection.prepare(HARBOUR, source, base)
        with running(demo_config(Path(name) / "home"), signals, say) as stack:
            _play(Session(stack, console, as_json=False), base, source)
    target.write_text(_svg(console))
    say(f"{target} is drawn")


def _play(session: Session, base: str, source: Path) -> None:
    submit = ("submit", "--profile", "demo", "--wait")
    session.arkline(*submit, "--type", "batch-manifest", f"{base}/objects.checkm")
    wrong = digest_file(source / "ferry" / "ferry.png", ["md5"]).value("md5")  # the digest of another file
    session.arkline(*submit, "--digest", f"md5:{wrong}", f"{base}/ferry/notice.txt")
    session.arkline("jobs")
    session.arkline("why", "jid0000000004")


def _svg(console: Console) -> str:
    """The session as SVG, without the reference to a remote font: the reader's monospace font is used."""
    layout = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.S)
    return console.export_svg(title="arkline", theme=DIMMED_MONOKAI, code_format=layout, unique_id="arkline")
