"""The manifests for KubeRay: Kubernetes' own schemas accept them, they hold no secret, and each command is one that there is.

kubeconform and the schema of KubeRay's RayCluster are in no registry that Python or Node can install from. So every object of
Kubernetes, and each pod template of the RayCluster, is checked strictly by kubernetes-validate, and what is around these
templates by a schema below. It has the fields that are used here, as `ray.io/v1` of KubeRay 1.2 and later has them, and no other.
"""

import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from test_cli_deploy import accepted

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "deploy" / "kuberay").glob("*.yaml"))
VERSION = "1.33"

_GROUP = {
    "rayStartParams": {"type": "object", "additionalProperties": {"type": "string"}},
    "template": {"type": "object", "required": ["spec"]},
}
RAYCLUSTER = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "ray.io/v1"},
        "kind": {"const": "RayCluster"},
        "metadata": {
            "type": "object",
            "additionalProperties": False,
            "required": ["name", "namespace"],
            "properties": {"name": {"type": "string", "maxLength": 50}, "namespace": {"type": "string"}},
        },
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["headGroupSpec", "workerGroupSpecs"],
            "properties": {
                "headGroupSpec": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["rayStartParams", "template"],
                    "properties": {**_GROUP, "serviceType": {"enum": ["ClusterIP"]}},
                },
                "workerGroupSpecs": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["groupName", "minReplicas", "maxReplicas", "rayStartParams", "template"],
                        "properties": {
                            **_GROUP,
                            "groupName": {"type": "string"},
                            **{name: {"type": "integer", "minimum": 0} for name in ("replicas", "minReplicas", "maxReplicas")},
                        },
                    },
                },
            },
        },
    },
}


def objects() -> list[dict[str, Any]]:
    return [manifest for file in FILES for manifest in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


def kind(name: str) -> dict[str, Any]:
    (wanted,) = (manifest for manifest in objects() if manifest["kind"] == name)
    return wanted


def templates() -> Iterator[tuple[str, dict[str, Any]]]:
    """The pod templates, by what they are for."""
    spec = kind("RayCluster")["spec"]
    yield "head", spec["headGroupSpec"]["template"]
    yield from ((group["groupName"], group["template"]) for group in spec["workerGroupSpecs"])
    yield "validator", kind("Deployment")["spec"]["template"]


def containers(template: dict[str, Any]) -> list[dict[str, Any]]:
    return [*template["spec"].get("initContainers", ()), *template["spec"]["containers"]]


def check(document: dict[str, Any]) -> None:
    """Raises the error of either validator."""
    if document["kind"] != "RayCluster":
        kubernetes_validate.validate(document, VERSION, strict=True)
        return
    jsonschema.validate(document, RAYCLUSTER)
    for group in (document["spec"]["headGroupSpec"], *document["spec"]["workerGroupSpecs"]):
        template = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "one"}, "template": group["template"]}
        kubernetes_validate.validate(template, VERSION, strict=True)


@pytest.mark.parametrize("number", range(len(objects())), ids=lambda number: objects()[number]["kind"])
def test_kubernetes_accepts_each_object(number: int) -> None:
    check(objects()[number])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "workerGroupSpecs", 0, "template", "spec", "containers", 0, "securityContext", "procMountt"), "Unmasked"),
        (("spec", "headGroupSpec", "template", "spec", "containers", 0, "ports", 0, "containerPort"), "six"),
        (("spec", "workerGroupSpecs", 0, "rayStartParams", "num-cpus"), 1),
        (("spec", "workerGroupSpecs", 0, "minReplica"), 1),
    ],
)
def test_a_field_that_is_wrong_is_refused(path: tuple[Any, ...], value: object) -> None:
    cluster = kind("RayCluster")
    place: Any = cluster
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
        check(cluster)


def test_workers_hold_boxes_and_the_head_takes_no_trial() -> None:
    spec = kind("RayCluster")["spec"]
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    (group,) = spec["workerGroupSpecs"]
    assert yaml.safe_load(yaml.safe_load(group["rayStartParams"]["resources"])) == {"sandbox": 1}
    pod = group["template"]["spec"]
    (worker,) = pod["containers"]
    context = worker["securityContext"]
    assert (context["procMount"], context["seccompProfile"], context["appArmorProfile"]) == (
        "Unmasked",
        {"type": "Unconfined"},
        {"type": "Unconfined"},
    )
    assert pod["hostUsers"] is False, "Kubernetes refuses procMount: Unmasked with the users of the host"
    assert not context["privileged"]
    assert context["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(("name", "template"), list(templates()), ids=[name for name, _ in templates()])
def test_a_pod_is_nobody_special_and_takes_its_secrets_from_secrets(name: str, template: dict[str, Any]) -> None:
    spec = template["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["automountServiceAccountToken"] is False
    assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}
    volumes = {volume["name"]: volume for volume in spec.get("volumes", ())}
    assert not any("hostPath" in volume for volume in volumes.values())
    for container in containers(template):
        assert "@sha256:" in container["image"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"].keys() >= {"cpu", "memory"}
        assert {mount["name"] for mount in container.get("volumeMounts", ())} <= set(volumes)
        for variable in container.get("env", ()):
            secret = any(word in variable["name"] for word in ("TOKEN", "PASSW", "PASSPHRASE", "SECRET", "KEY"))
            assert ("valueFrom" in variable) == secret, variable


def test_no_object_is_a_secret_and_the_policy_names_the_pods_that_there_are() -> None:
    assert not any(manifest["kind"] == "Secret" for manifest in objects())
    labels = {template["metadata"]["labels"]["app"] for _, template in templates()}
    (policy,) = (manifest for manifest in objects() if manifest["kind"] == "NetworkPolicy")
    (rule,) = policy["spec"]["ingress"]
    (expression,) = rule["from"][0]["podSelector"]["matchExpressions"]
    assert set(expression["values"]) == labels
    assert policy["spec"]["podSelector"]["matchLabels"]["app"] == dict(templates())["head"]["metadata"]["labels"]["app"]


def test_the_validator_is_a_node_of_the_cluster_and_its_command_is_one_that_there_is() -> None:
    deployment, settings = kind("Deployment"), kind("ConfigMap")
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})
    pod = deployment["spec"]["template"]["spec"]
    keys, ray = pod["initContainers"]
    assert ray["restartPolicy"] == "Always"
    assert keys["command"][0] == "sh"
    assert shutil.which("install")
    (validator,) = pod["containers"]
    chosen = tomllib.loads(settings["data"]["validator.toml"])
    assert f"--address={chosen['node']['validator']['address']}" in ray["command"]
    assert "--num-cpus=0" in ray["command"]
    cluster = kind("RayCluster")["metadata"]
    assert chosen["node"]["validator"]["address"] == f"{cluster['name']}-head-svc.{cluster['namespace']}.svc:6379"
    shared = [{mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]} for container in (ray, validator)]
    assert all(mounts["session"] == "/tmp" and mounts["shared-memory"] == "/dev/shm" for mounts in shared)
    compile(validator["livenessProbe"]["exec"]["command"][2], "<probe>", "exec")
    options = chosen["node"]["validator"]
    words = [word for name in ("url", "key") for word in (f"--{name}", options[name])]
    words += ["--engine", options["engine"], "--address", options["address"]]
    assert validator["args"][:2] == ["--config", "/etc/assay/validator.toml"]
    accepted([*validator["args"][2:], options["folder"], *words])
