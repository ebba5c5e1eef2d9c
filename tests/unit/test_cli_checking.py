import json
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_group
from typer.testing import CliRunner, Result

from entrypoints.cli.main import app
from operations.deposits.validation import ManifestBytes, check_manifest, check_profiles, fetch_manifest
from pipeline.errors import UsageRefused
from pipeline.profiles.profile import Profiles, UnknownProfile
from pipeline.settings import Settings
from tests.servers.http_source import HttpSource
from tests.support.manifests import BATCH, OBJECT, URL, manifest
from tests.support.spreadsheets import inline, ods, ods_row, ods_text, xlsx

runner = CliRunner()

DEMO = """\
name: demo
owner: ark:/99999/fk4harbour
collections: [ark:/99999/fk4log]
"""
MERRITT = """\
ProfileID: old_content
Owner: ark:/99999/j2000000
Collection.1: ark:/99999/m5000000
Shelf: 12
"""
GOOD = manifest(f"{URL} | md5 | 0b21c6d48e815dd537d42dc1cfac0111 | 12 | | a.jpg | image/jpeg")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "demo.yaml").write_text(DEMO)
    (tmp_path / "old_content.txt").write_text(MERRITT)
    return tmp_path


def run(folder: Path, *arguments: str, **settings: str) -> Result:
    environment = {"ARKLINE_PROFILES": str(folder), "ARKLINE_ALLOW_NETWORKS": "127.0.0.0/8", **settings}
    return runner.invoke(app, arguments, env=environment)


def told(result: Result) -> Any:
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    "command", ["profile check", "manifest check", "manifest from-csv"], ids=lambda name: name
)
def test_each_has_help_with_an_example_and_answers_in_json(command: str) -> None:
    shown = " ".join(runner.invoke(app, [*command.split(), "--help"]).output.split())

    assert f"Example: arkline {command}" in shown
    assert "--json" in shown
    assert command.split()[0] in get_group(app).commands


def test_a_good_profile_is_reported_as_good_and_an_ignored_field_is_a_warning(folder: Path) -> None:
    (folder / "new.yml").write_text(DEMO)

    result = run(folder, "profile", "check", "--json")

    assert result.exit_code == 0
    demo, old, unread = told(result)["profiles"]
    assert (demo["name"], demo["errors"], demo["warnings"]) == ("demo.yaml", [], [])
    assert "Shelf" in " ".join(each["message"] for each in old["warnings"])
    assert (unread["name"], unread["warnings"][0]["message"][:11]) == ("new.yml", "is not read")


def test_every_fault_of_a_bad_profile_is_reported_and_the_other_profiles_are_checked(folder: Path) -> None:
    (folder / "bad.yaml").write_text("owner: me\npriorty: 3\n")

    result = run(folder, "profile", "check")

    assert result.exit_code == 1
    assert "demo.yaml: profile, good" in result.stdout
    for fault in ("'me' is not valid for owner", "did you mean priority?", "collections is missing"):
        assert f"bad.yaml: error: {fault}" in result.stderr or fault in result.stderr


def test_one_profile_is_named_by_its_name_or_its_file(folder: Path) -> None:
    assert run(folder, "profile", "check", "demo").stdout == "demo.yaml: profile, good\n"
    assert run(folder, "profile", "check", str(folder / "demo.yaml")).exit_code == 0
    unknown = run(folder, "profile", "check", "demmo")
    assert (unknown.exit_code, "did you mean demo?" in unknown.stderr) == (2, True)


def test_a_secret_in_a_bad_profile_is_not_shown(folder: Path) -> None:
    (folder / "bad.yaml").write_text(DEMO + "callback_url: 'htp://me:secret@x.edu'\n")

    result = run(folder, "profile", "check", "bad")

    assert result.exit_code == 1
    assert "secret" not in result.output


def test_a_manifest_is_checked_in_a_file_and_at_a_url(folder: Path) -> None:
    (folder / "a.checkm").write_bytes(GOOD)
    with HttpSource() as source:
        for place in (str(folder / "a.checkm"), source.put("/a.checkm", GOOD)):
            result = run(folder, "manifest", "check", place, "--json")

            assert result.exit_code == 0
            assert (told(result)["kind"], told(result)["rows"]) == ("object-manifest", 1)


def test_every_problem_of_a_manifest_has_its_line_errors_apart_from_warnings(
    folder: Path,
) -> None:
    path = folder / "bad.checkm"
    path.write_bytes(manifest(f"{URL} | md5 | xyz", "ftp://x.edu/b | | | 1 | | b | picture"))

    result = run(folder, "manifest", "check", str(path), "--json")

    assert result.exit_code == 1
    assert [each["line"] for each in told(result)["errors"]] == [3, 4]
    assert any("MIME type" in each["message"] for each in told(result)["warnings"])
    plain = run(folder, "manifest", "check", str(path))
    assert f"{path}:3: error: 'xyz' is not a value of md5" in plain.stderr
    assert plain.stdout == ""


def test_a_manifest_of_another_type_than_expected_is_refused(folder: Path) -> None:
    (folder / "a.checkm").write_bytes(GOOD)

    result = run(folder, "manifest", "check", str(folder / "a.checkm"), "--type", "batch-manifest")

    assert result.exit_code == 1
    assert "submit it as type object-manifest" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["manifest", "check", "nowhere.checkm"], "cannot be read: No such file"),
        (["manifest", "check", "ftp://x.edu/a"], "http and https only"),
        (["manifest", "check", "a", "--type", "box"], "'box' is not one of object-manifest"),
        (["manifest", "from-csv"], "add --template"),
        (["profile", "check", "nowhere/x.yaml"], ""),
    ],
)
def test_what_cannot_be_read_is_wrong_usage(folder: Path, arguments: list[str], message: str) -> None:
    result = run(folder, *arguments)

    assert result.exit_code in (1, 2)
    assert message in result.stderr


@pytest.mark.parametrize(
    ("profile", "options", "setting"),
    [
        (OBJECT, [], "ARKLINE_MANIFEST_LIMIT"),
        (BATCH, [], "ARKLINE_MANIFEST_LIMIT"),
        (BATCH, ["--type", "batch-manifest"], "ARKLINE_MANIFEST_LIMIT"),
        (BATCH, ["--type", "batch_manifest"], "ARKLINE_MANIFEST_LIMIT"),
    ],
)
def test_a_manifest_that_is_too_large_is_refused_with_the_setting_to_raise(
    folder: Path, profile: str, options: list[str], setting: str
) -> None:
    (folder / "a.checkm").write_bytes(manifest(f"{URL} | | | | | a.checkm", profile=profile))
    result = run(folder, "manifest", "check", str(folder / "a.checkm"), *options, **{setting: "100"})

    assert result.exit_code == 2
    assert "divide it, or raise" in result.stderr
    assert setting in result.stderr


def test_a_table_becomes_a_manifest_on_standard_output_or_in_a_file(folder: Path) -> None:
    table = folder / "a.csv"
    table.write_text(run(folder, "manifest", "from-csv", "--template").stdout)

    shown = run(folder, "manifest", "from-csv", str(table))
    written = run(folder, "manifest", "from-csv", str(table), "--output", str(folder / "b.checkm"), "--json")

    assert (shown.exit_code, written.exit_code) == (0, 0)
    assert shown.stdout_bytes == (folder / "b.checkm").read_bytes()
    assert b"mrt-single-file-batch-manifest" in shown.stdout_bytes
    assert told(written)["rows"] == 1


def test_a_problem_of_many_rows_is_one_line_that_names_the_first_rows(folder: Path) -> None:
    rows = "".join(f"ftp://x.edu/{number}\n" for number in range(9))
    (folder / "a.csv").write_text(f"URL\n{rows}")

    result = run(folder, "manifest", "from-csv", str(folder / "a.csv"))

    (error,) = [line for line in result.stderr.splitlines() if ": error: " in line]
    assert error.startswith(f"{folder / 'a.csv'}:2: error: the URL does not begin")
    assert error.endswith("(also on lines 3, 4, 5, 6, 7 and 3 lines more)")


def test_columns_are_named_on_the_command_line(folder: Path) -> None:
    (folder / "a.csv").write_text(f"Where,Remarks\n{URL},none\n")

    unnamed = run(folder, "manifest", "from-csv", str(folder / "a.csv"))
    named = run(
        folder, "manifest", "from-csv", str(folder / "a.csv"), "-c", "Where=fileUrl", "-c", "Remarks="
    )
    wrong = run(folder, "manifest", "from-csv", str(folder / "a.csv"), "-c", "Where")

    assert (unnamed.exit_code, named.exit_code, wrong.exit_code) == (1, 0, 2)
    assert URL.encode() in named.stdout_bytes
    assert "'Where' is not TITLE=FIELD" in wrong.stderr


def test_bytes_that_are_no_table_are_refused_in_the_format_of_the_other_problems(folder: Path) -> None:
    (folder / "a.csv").write_text('URL,Title\nhttps://x.edu/a,"b\n')
    (folder / "b.xlsx").write_bytes(b"PK\3\4 xl/workbook.xml")

    text = run(folder, "manifest", "from-csv", str(folder / "a.csv"))
    spreadsheet = run(folder, "manifest", "from-csv", str(folder / "b.xlsx"), "--json")

    assert (text.exit_code, spreadsheet.exit_code) == (1, 1)
    assert f"{folder / 'a.csv'}:1: error: the table cannot be read after row 1" in text.stderr
    assert "it cannot be read" in told(spreadsheet)["errors"][0]["message"]


def test_a_sheet_of_a_spreadsheet_becomes_a_manifest_of_objects(folder: Path) -> None:
    (folder / "a.ods").write_bytes(
        ods(
            "".join(
                f'<table:table table:name="{name}">{ods_row(*ods_text("Adresse", "Titel"))}'
                f"{ods_row(*ods_text(URL, name))}</table:table>"
                for name in ("Eins", "Zwei")
            )
        )
    )

    result = run(folder, "manifest", "from-csv", str(folder / "a.ods"), "--sheet", "Zwei")

    assert result.exit_code == 0
    assert b"| Zwei |" in result.stdout_bytes
    assert b"Eins" not in result.stdout_bytes


def test_a_spreadsheet_is_no_manifest(folder: Path) -> None:
    (folder / "a.checkm").write_bytes(xlsx(inline("URL")))

    result = run(folder, "manifest", "check", str(folder / "a.checkm"))

    assert (result.exit_code, "this is a table, not a manifest" in result.stderr) == (1, True)


def test_a_table_with_a_problem_becomes_no_manifest(folder: Path) -> None:
    (folder / "a.csv").write_text("fileUrl\nftp://x.edu/a\n")

    arguments = ("--type", "batch-manifest", str(folder / "a.csv"), "--output", str(folder / "b.checkm"))
    result = run(folder, "manifest", "from-csv", *arguments)

    assert result.exit_code == 1
    assert f"{folder / 'a.csv'}:2: error: the URL does not begin" in result.stderr
    assert not (folder / "b.checkm").exists()
    assert BATCH not in result.stdout


def test_a_secret_that_is_too_short_or_readable_by_every_user_is_reported(folder: Path) -> None:
    secret = folder / "demo.secret"
    secret.write_text("short")
    refused = run(folder, "profile", "check", "demo")
    secret.write_text("a secret of many letters")
    secret.chmod(0o644)
    warned = run(folder, "profile", "check", "demo")
    secret.chmod(0o640)

    assert (refused.exit_code, warned.exit_code) == (1, 0)
    assert "demo.secret is shorter than 16 bytes" in refused.stderr
    assert "every user of this machine can read the callback's secret demo.secret" in warned.stderr
    assert run(folder, "profile", "check", "demo").stdout == "demo.yaml: profile, good\n"


def test_the_operation_itself_opens_no_file_of_the_machine(folder: Path) -> None:
    (folder / "a.checkm").write_bytes(GOOD)
    settings = Settings(profiles=folder)

    with pytest.raises(UsageRefused, match="http and https only"):
        fetch_manifest(settings, f"file://{folder}/a.checkm")
    with pytest.raises(UnknownProfile):
        check_profiles(Profiles(folder), f"../{folder.name}/demo")
    assert check_manifest(settings, ManifestBytes("a.checkm", GOOD)).good
