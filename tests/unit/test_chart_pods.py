"""The pods that the drill of containers takes out of the chart."""

from collections import Counter

import pytest

from tests.support.fleet import PROJECT
from tests.support.requirements import unavailable
from tools.containers import chart, project
from tools.containers.story import NotCovered

IMAGES = {
    "ARKLINE_IMAGE": "localhost/arkline:now",
    "ARKLINE_ZOOKEEPER_IMAGE": "localhost/zookeeper:now",
    "ARKLINE_REDIS_IMAGE": "localhost/valkey:now",
}


@pytest.fixture(scope="module")
def manifests() -> list[chart.Manifest]:
    try:
        return chart.rendered(PROJECT, IMAGES)
    except NotCovered as error:
        unavailable(error)


@pytest.fixture(scope="module")
def pods(manifests: list[chart.Manifest]) -> list[chart.Pod]:
    return list(chart.pods(manifests))


def test_a_pod_mounts_only_its_own_volumes(pods: list[chart.Pod]) -> None:
    names = Counter(
        volume["name"] for pod in pods for volume in pod.spec["volumes"] if volume["name"] != "data"
    )

    assert set(names.values()) == {1}
    for pod in pods:
        volumes = {volume["name"] for volume in pod.spec["volumes"]}
        mounts = {
            mount["name"] for container in pod.spec["containers"] for mount in container["volumeMounts"]
        }
        assert mounts <= volumes


def test_a_pod_gets_the_files_of_its_secrets_and_no_others(pods: list[chart.Pod]) -> None:
    files = {pod.name: {key for one in pod.maps for key in one["data"]} for pod in pods}

    assert "users.acl" in files["drill-arkline-redis"]
    assert {"arkline_zk_password", "arkline_broker_url"} <= files["drill-arkline-beat"]
    assert not files["drill-arkline-beat"] & {"arkline_callback_secret", "redis-password"}


def test_pods_are_known_by_the_names_that_the_settings_give(
    manifests: list[chart.Manifest], pods: list[chart.Pod]
) -> None:
    (settings,) = (one["data"] for one in manifests if one["metadata"]["name"] == "drill-arkline-settings")
    names = {name for pod in pods for name in (pod.name, *pod.names)}

    assert {host.partition(":")[0] for host in settings["ARKLINE_ZK_HOSTS"].split(",")} <= names
    assert "drill-arkline-redis" in names


def test_a_second_compose_file_replaces_single_values() -> None:
    base = {"services": {"worker": {"image": "a", "deploy": {"mode": "replicated", "replicas": 2}}}}

    both = project.merged(base, {"services": {"worker": {"deploy": {"replicas": 1}}}})

    assert both == {"services": {"worker": {"image": "a", "deploy": {"mode": "replicated", "replicas": 1}}}}
