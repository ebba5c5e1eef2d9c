"""Alert rules and dashboard: every rule is tested and has a place in the runbook."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline import peers
from tests.support.requirements import unavailable

PROJECT = Path(__file__).parents[2]
MONITORING = PROJECT / "deploy" / "monitoring"
RULES = MONITORING / "arkline.rules.yml"


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return list(group["rules"])


@pytest.fixture
def promtool() -> str:
    if (program := shutil.which("promtool")) is None:
        unavailable("promtool is missing: apt-get install prometheus")
    return program


def test_every_rule_fires_and_stays_quiet_as_its_test_says(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "test", "rules", "arkline.rules.test.yml"], cwd=MONITORING, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_has_a_test_in_which_it_fires() -> None:
    tests = yaml.safe_load((MONITORING / "arkline.rules.test.yml").read_text())["tests"]

    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}

    assert fired == {rule["alert"] for rule in rules()}


def test_the_alert_warns_of_a_certificate_when_doctor_does() -> None:
    (rule,) = (rule for rule in rules() if rule["alert"] == "ArklineCertificateEnds")

    assert rule["expr"].strip().endswith(f"< {peers.RENEW_BEFORE.days} * 86400")


def test_every_trouble_has_an_alert_that_exists_or_a_reason_why_it_has_none() -> None:
    page = (PROJECT / "docs" / "operators" / "monitoring.md").read_text()
    table = page.partition("| trouble | alert |\n|---|---|\n")[2].partition("\n\n")[0]
    named = {rule["alert"] for rule in rules()}

    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]

    assert len(rows) >= 12
    for trouble, answer in rows:
        alerts = re.findall(r"`(Arkline\w+)`", answer)
        assert set(alerts) <= named, trouble
        assert alerts or answer.startswith("none"), trouble


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_every_rule_names_a_heading_of_the_runbook(rule: dict[str, Any]) -> None:
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")

    headings = re.findall(r"^#+ (.+)$", (PROJECT / page).read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert anchor in anchors


def test_the_dashboards_panels_have_queries_and_do_not_overlap() -> None:
    panels = json.loads((MONITORING / "grafana-dashboard.json").read_text())["panels"]

    assert all(target["expr"] for panel in panels for target in panel["targets"])
    corners = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(corners)) == len(corners)
    assert len({panel["id"] for panel in panels}) == len(panels)
