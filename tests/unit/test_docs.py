"""The pages follow the code: what can be derived is compared, what can be listed is looked for.

`python -m tests.unit.test_docs` writes the tables of docs/operators/settings.md and profiles.md.
"""

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args
from urllib.parse import unquote

import pytest
from pydantic import SecretStr
from typer.main import get_group

from pipeline import records
from pipeline.profiles import template
from pipeline.settings import GONE, EnvironmentSettings
from pipeline.states import JOB
from tests.golden import promises
from tests.support import all_settings
from tests.support.browser import DOCUMENTATION, DOCUMENTED
from tests.support.spelled_commands import Spelled, problem
from tools import states_page
from tools.dev import app as dev
from zkstate import paths
from zkstate.connection import clock

PROJECT = Path(__file__).parents[2]
DOCS = PROJECT / "docs"
PAGES = sorted([*PROJECT.glob("*.md"), *DOCS.rglob("*.md")])

DEV: dict[str, Any] = dict(get_group(dev.app).commands)

OF_THE_EXAMPLE = "arkline resume --from scanning"
"""The state that docs/adding-a-step.md adds."""

RECORDS = (
    *dict.fromkeys(
        kind
        for stored in promises.STORED.values()
        for kind in (stored, *get_args(stored))
        if inspect.isclass(kind) and issubclass(kind, records.Record)
    ),
    *(clock.FleetMark, clock.MachineReading),
)
"""The records that are kept in znodes."""

QUEUES = [paths.queue(state) for state in JOB.where(lambda facts: facts.queued)]
"""The page has one path for all of them, `/jobs/states/STATE`."""


def settings_table(kind: type[EnvironmentSettings]) -> str:
    """Every setting, its default and what it is for."""
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for name, field in kind.model_fields.items():
        default = _shown(None if field.default_factory else field.get_default())
        rows.append(f"| `ARKLINE_{name.upper()}` | {default} | {field.description} |")
    return "\n".join(rows)


def _shown(default: object) -> str:
    text = "" if default in (None, ()) or isinstance(default, SecretStr) else str(default)
    return f"`{text}`" if text else ""


def anchors(page: Path) -> set[str]:
    """The names that a page's headings can be linked by, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def code(page: Path) -> str:
    """What a page sets in the type of code, a line each; lines that end in a backslash are joined."""
    text = page.read_text().replace("\\\n", " ")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    return "\n".join(re.sub(r"#.*", "", each) for each in blocks + spans)


def links(page: Path) -> list[str]:
    """Where a page links to and which pictures it shows, on this project's own ground."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset|href)="([^"]+)"', text)
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def test_the_state_diagram_is_that_of_the_tables() -> None:
    page = DOCS / "states.md"

    assert page.read_text() == states_page.markdown(), "run: python -m tools.states_page"


@pytest.mark.parametrize("kind", all_settings.KINDS)
def test_every_setting_is_in_the_settings_page_as_its_field_describes_it(
    kind: type[EnvironmentSettings],
) -> None:
    page = (DOCS / "operators" / "settings.md").read_text()

    assert settings_table(kind) in page, "paste what `python -m tests.unit.test_docs` writes"


def test_the_tables_have_the_settings_of_every_plugin() -> None:
    with_settings = {path.parent.name for path in (PROJECT / "plugins").glob("*/settings.py")}

    assert {kind.__module__.split(".")[1] for kind in all_settings.KINDS[1:]} == with_settings


def test_every_field_of_a_profile_is_in_its_page_as_the_field_describes_it() -> None:
    page = (DOCS / "operators" / "profiles.md").read_text()

    assert template.table() in page, "paste what `python -m tests.unit.test_docs` writes"


def test_every_test_that_the_threat_model_names_exists() -> None:
    page = (DOCS / "security.md").read_text()
    sources = "".join(path.read_text() for path in (PROJECT / "tests").rglob("test_*.py"))

    assert [name for name in re.findall(r"`(test_\w+)`", page) if f"def {name}(" not in sources] == []
    assert [path for path in re.findall(r"`(tests/\S+\.py)`", page) if not (PROJECT / path).exists()] == []


@pytest.mark.parametrize("function", promises.path_functions(), ids=lambda function: function.__name__)
def test_every_path_is_in_the_page_about_znodes(function: Callable[..., str]) -> None:
    assert f"`{promises.example(function)}`" in (DOCS / "znodes.md").read_text()


@pytest.mark.parametrize("path", sorted(set(paths.SKELETON) - set(QUEUES)))
def test_what_is_there_before_the_first_batch_is_in_the_page_about_znodes(path: str) -> None:
    assert f"`{path}`" in (DOCS / "znodes.md").read_text()


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_every_field_of_a_stored_record_is_in_the_page_about_znodes(record: type[records.Record]) -> None:
    page = (DOCS / "znodes.md").read_text()

    assert [name for name in record.model_fields if f"`{name}`" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_a_pages_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        path, _, anchor = unquote(target).partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_a_page_spells_only_commands_that_the_command_line_takes(page: Path) -> None:
    refused = {
        line: said
        for line in re.findall(r"(?<![\w/.-])(?<!celery -A )arkline [a-z][^`\n]*", code(page))
        if line != OF_THE_EXAMPLE and (said := problem(Spelled(page.name, line, line).words, name_only=True))
    }
    assert refused == {}

    for said in re.findall(r"(?<![\w/.-])\./dev ([a-z][a-z-]*(?: [^`\n|;)]*)?)", code(page)):
        name, *rest = said.split()
        assert name in DEV, f"{page.name}: ./dev {said}"
        known = {option for parameter in DEV[name].params for option in parameter.opts} | {"--help"}
        passes_on = DEV[name].context_settings.get("ignore_unknown_options", False)
        unknown = {word.split("=")[0] for word in rest if word.startswith("--")} - known
        assert passes_on or not unknown, f"{page.name}: ./dev {said}"


def test_every_setting_that_a_text_names_exists() -> None:
    product = ("pipeline", "zkstate", "tasks", "operations", "entrypoints", "plugins")
    modules = [path for folder in product for path in (PROJECT / folder).rglob("*.py")]
    read = {name for path in modules for name in re.findall(r'"(ARKLINE_\w+)"', path.read_text())}
    compose = set(re.findall(r"\$\{(ARKLINE_\w+)", (PROJECT / "docker-compose.yml").read_text()))
    known = {f"ARKLINE_{name.upper()}" for name in all_settings.FIELDS} | read | compose
    known.add("ARKLINE_TAPE_ROOT")  # of the guest that guests.md shows
    known.add("ARKLINE_NAME")  # of any setting: `ARKLINE_NAME=value`
    pages = [page for page in PAGES if page.name != "CHANGELOG.md" and DOCS / "decisions" not in page.parents]
    deployed = [path for path in (PROJECT / "deploy").rglob("*") if path.is_file()]

    assert {
        (path.name, name)
        for path in (*pages, *modules, *deployed)
        for name in re.findall(r"ARKLINE_[A-Z0-9_]*[A-Z0-9]\b", path.read_text())
        if name not in known
    } <= {("maintenance.md", f"ARKLINE_{name}") for name in GONE}  # how to upgrade names these


def test_every_file_that_a_page_names_exists() -> None:
    folders = "pipeline|zkstate|tasks|operations|entrypoints|plugins|tests|tools|deploy|docs|examples"
    folders += "|benchmarks"
    pages = [page for page in PAGES if page.name != "CHANGELOG.md" and DOCS / "decisions" not in page.parents]

    assert [
        (page.name, name)
        for page in pages
        for name in re.findall(rf"`((?:{folders})/[\w./@-]*)`", page.read_text())
        if not (PROJECT / name).exists()
    ] == []


def test_every_picture_is_drawn_by_a_test_and_shown_in_a_document() -> None:
    shown = " ".join(path.read_text() for path in (PROJECT / "README.md", *DOCS.rglob("*.md")))

    assert {path.stem for path in DOCUMENTATION.iterdir()} == DOCUMENTED
    assert [name for name in DOCUMENTED if f"pictures/{name}.png" not in shown] == []


@pytest.mark.parametrize("page", ["reliability.md", "security.md"])
def test_every_test_that_a_guarantee_names_exists(page: str) -> None:
    text = (DOCS / page).read_text()
    files = [name for name in re.findall(r"`(tests/[\w/]+\.py)`", text) if not (PROJECT / name).is_file()]
    named = set(re.findall(r"`(test_\w+)`", text))
    defined = {
        name
        for path in (PROJECT / "tests").rglob("test_*.py")
        for name in re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE)
    }

    assert files == []
    assert named - defined == set()


def test_every_decision_is_in_the_list_of_decisions() -> None:
    decisions = {page.name for page in (DOCS / "decisions").glob("[0-9]*.md")}

    assert decisions == set(
        re.findall(r"\]\((\d{4}-[^)]+)\)", (DOCS / "decisions" / "README.md").read_text())
    )


if __name__ == "__main__":
    tables = (*map(settings_table, all_settings.KINDS), template.table())
    sys.stdout.write("\n\n".join(tables) + "\n")


def test_the_sum_of_the_chaos_runs_is_that_of_the_tables_and_of_the_readme() -> None:
    runs: list[dict[str, str]] = []
    names: list[str] = []
    for line in (DOCS / "reliability.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == "seed":
            names = cells
        elif not line.startswith("|"):
            names = []
        elif names and cells[0] != "all" and "---" not in line:
            runs.append(dict(zip(names, cells, strict=True)))
    text = " ".join((DOCS / "reliability.md").read_text().split())
    said = re.search(r"In all, the tables below have ([^:]+): (.*?), in (\d+) runs?,", text)
    assert said

    findings = ("lost", "duplicated", "illegal", "leaks", "audit findings")
    total = {name: sum(int(run[name]) for run in runs) for name in ("runs", "jobs", "faults", *findings)}
    with_findings = [run for run in runs if any(int(run[name]) for name in findings)]
    found = ", ".join(f"{name} {total[name]}" for name in findings)
    assert {run["runs"] for run in with_findings} <= {"1"}, "clean runs alone are summed in a row"
    assert said[1] == f"{total['runs']} runs"
    assert said[2] == f"{total['jobs']:,} jobs, {total['faults']:,} faults, {found}"
    assert int(said[3]) == len(with_findings)
    readme = " ".join((PROJECT / "README.md").read_text().split())
    assert f"{said[1]} with {total['jobs']:,} jobs and {total['faults']:,} injected faults" in readme.replace(
        "chaos ", ""
    )
    assert f"{total['runs'] - int(said[3])} runs ended with nothing lost" in readme
