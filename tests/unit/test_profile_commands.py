"""Profiles are listed, shown with all their values, and begun from a template."""

import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from entrypoints.cli.main import app
from pipeline.profiles.profile import Profile, read_profile
from pipeline.profiles.template import template
from tests.unit.test_cli_checking import DEMO, MERRITT, told


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "demo.yaml").write_text(DEMO + "description: A harbour\npriority: 3\n")
    (tmp_path / "old_content.txt").write_text(MERRITT)
    return tmp_path


def run(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["profile", *arguments], env={"ARKLINE_PROFILES": str(folder)})


def test_a_template_is_a_valid_profile_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "harbour.yaml").write_text(run(tmp_path, "template", "harbour").stdout)

    profile, warnings = read_profile(tmp_path / "harbour.yaml")

    assert (profile.name, warnings) == ("harbour", ())


def test_every_field_of_a_template_is_valid_if_it_is_used(tmp_path: Path) -> None:
    used = re.sub(r"^#(?! \S)", "", template("harbour"), flags=re.MULTILINE)
    (tmp_path / "harbour.yaml").write_text(used)

    profile, _ = read_profile(tmp_path / "harbour.yaml")

    assert profile.model_fields_set == set(Profile.model_fields)
    assert None not in profile.limits.model_dump().values()


def test_profiles_are_listed_with_the_arks_of_their_new_objects_and_a_bad_one_with_its_fault(
    folder: Path,
) -> None:
    good = run(folder, "list", "--json")
    (folder / "bad.yaml").write_text("owner: me\n")
    bad = run(folder, "list")

    assert (good.exit_code, bad.exit_code) == (0, 1)
    demo, old = told(good)["profiles"]
    assert (demo["name"], demo["ark_prefixes"], old["name"]) == ("demo", ["ark:/99999/fk4"], "old_content")
    assert "'me' is not valid for owner" in bad.stdout


def test_a_profile_is_shown_with_its_defaults_and_without_secrets(folder: Path) -> None:
    (folder / "demo.yaml").write_text(DEMO + "callback_url: https://me:secret@x.edu/c?token=t\n")

    shown, view = run(folder, "show", "demo"), told(run(folder, "show", "demo", "--json"))

    assert shown.exit_code == 0
    assert "secret" not in shown.output
    assert "token" not in shown.output
    assert view["values"]["callback_url"] == "https://x.edu/c"
    assert view["values"]["shoulder"] == "fk4"
    assert view["set_in_file"] == ["name", "owner", "collections", "callback_url"]
    assert re.search(r"shoulder +fk4 +default", shown.stdout)


def test_checks_are_shown_as_a_profile_would_name_them(folder: Path) -> None:
    (folder / "demo.yaml").write_text(
        DEMO + "checks: [{name: sized, command: [/usr/bin/wc, -c], found: note}]\n"
    )

    shown = run(folder, "show", "demo")

    assert shown.exit_code == 0, shown.stderr
    assert "{name: sized, command: [/usr/bin/wc, -c], after: downloaded, found: note," in shown.stdout


def test_an_unknown_profile_is_an_error_that_names_a_near_one(folder: Path) -> None:
    result = run(folder, "show", "demmo")

    assert (result.exit_code, "did you mean demo?" in result.stderr) == (2, True)


def test_the_template_in_json_is_the_same_text(folder: Path) -> None:
    text = told(run(folder, "template", "--json"))["template"]

    assert yaml.safe_load(text)["name"] == "demo"
