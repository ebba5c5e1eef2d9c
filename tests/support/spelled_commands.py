"""Each `arkline ...` in the texts of the product and of the pages, with placeholders filled."""

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import typer
from typer.core import TyperGroup

from entrypoints.cli.command_table import ENTRIES, load

PROJECT = Path(__file__).parents[2]

BID, JID, ARK = "bid0000000001", "jid0000000001", "ark:/99999/fk4abc"

FILES = frozenset(
    {
        "login",
        "logout",
        "manifest check",
        "manifest from-csv",
        "open",
        "profile template",
        "profile check",
        "standalone start",
        "standalone stop",
    }
)
"""Commands that do not ask the site of the variables: most are about files of this machine."""

FILLED = {
    "BID": BID,
    "JID": JID,
    "ID": JID,
    "ARK": ARK,
    "URL": "http://127.0.0.1:1",
    "N": "1",
    "STATE": "failed",
    "ROLE": "operator",
    "WORKER": "worker1@host",
    "jid": JID,
    "bid": BID,
    "id": JID,
    "ark": ARK,
    "cause": "c0ffee",
    "collection": "demo",
    "label": "file",
    "url": "https://example.org/a.txt",
    "version": "1",
    "verb": "resume",
    "event": "resume",
    "reason": "",
}
"""A placeholder, or the last word of an expression in an f-string -> a value; others are names."""

LEFT_OUT = ("...", "$WORKER_OPTIONS", "--debug", "--help")
"""Words that stand for any others, and the options of all commands."""

_KNOWN = "|".join(entry.name for entry in ENTRIES)
_USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]  # has no public name


@dataclass(frozen=True)
class Spelled:
    """A command as a text has it."""

    place: str
    line: str
    text: str
    """All of the text, for what it says beside the command."""
    name_only: bool = False
    """Whether a command's name may stand for it, without its arguments: in docstrings and comments."""

    @property
    def words(self) -> list[str]:
        line = re.sub(r"\{(\w*)\}|(?<!-)\b([A-Z]+)\b", _filled, self.line.replace("%i", "1"))
        reader = shlex.shlex(line, posix=True, punctuation_chars=True)
        reader.whitespace_split = True
        reader.commenters = "#"
        words: list[str] = []
        for word in reader:
            if not set(word) - set("();<>|&"):
                break
            words.append(word)
        return [word.strip("[]") for word in words[1:] if word not in LEFT_OUT]


def _filled(placeholder: re.Match[str]) -> str:
    name = placeholder[1] if placeholder[1] is not None else placeholder[2]
    return FILLED.get(name, "{}" if name == "" else name)


def of_python(path: Path) -> Iterator[Spelled]:
    """The commands in the strings of a module."""
    source = path.read_text()
    if "arkline " not in source:
        return
    nodes = list(ast.walk(ast.parse(source)))
    in_other = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    remarks = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if id(node) in in_other:
            continue
        if isinstance(node, ast.JoinedStr):
            text = "".join(map(_part, node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        place = f"{path.relative_to(PROJECT)}:{node.lineno}"
        for line in in_text(text):
            yield Spelled(place, line, text, name_only=id(node) in remarks)


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    words: list[str] = re.findall(r"\w+", ast.unparse(part))
    return f"{{{words[-1]}}}"


def in_text(text: str) -> Iterator[str]:
    """The commands in a text: those set as code, and lines that have one to their end."""
    for code in re.findall(r"(?s)`([^`]+)`|<code>(.*?)</code>", text):
        spelled = " ".join("".join(code).split())
        if re.match(r"arkline [a-z{-]", spelled):
            yield spelled
    rest = re.sub(r"(?s)`[^`]+`|<code>.*?</code>", "", text)
    yield from re.findall(rf"(?<![\w-])arkline (?:(?:{_KNOWN})(?![\w-])|\{{(?:verb|event)\}}).*", rest)


def problem(words: list[str], *, name_only: bool = False) -> str | None:
    """What the parser of the command line says against the words; None if it takes them."""
    if not words:
        return None
    name, *rest = words
    command = load(name)
    if isinstance(command, TyperGroup):
        if not rest:
            return None if name_only else "names a group of commands"
        name, *rest = rest
        command = command.commands.get(name)
    if command is None:
        return f"there is no command '{name}'"
    if name_only and all(word.startswith("--") for word in rest):
        known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        return ", ".join(set(rest) - known) or None
    try:
        command.make_context(name, list(rest))
    except _USAGE_ERROR as error:
        lacking = type(error).__name__ == "MissingParameter"
        return None if lacking and name_only else str(error) or type(error).__name__
    return None
