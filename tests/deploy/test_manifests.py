"""The manifests are valid, closed down, and say the same as the library does."""

import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from kfp import compiler

from zeus_kfp.components.image import DEFAULT_IMAGE
from zeus_kfp.pipelines.recurring_training import pipeline
from zeus_kfp.pipelines.recurring_training.power_access import ZEUSD_LABEL
from zeus_kfp.zeus_core._version import __version__

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUSTOMIZATION = {"apiVersion", "kind", "resources", "namespace", "images"}
RESTRICTED_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"
}  # fmt: skip


def built(folder, **changes):
    """Return what a kustomization gives, of the fields that ours use, with changes to it."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text()) | changes
    assert set(kustomization) <= KUSTOMIZATION, "extend this small build"
    resources = []
    for name in kustomization["resources"]:
        path = (folder / name).resolve()
        resources += built(path) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))
    for resource in resources:
        if "namespace" in kustomization:
            resource["metadata"]["namespace"] = kustomization["namespace"]
        for container in containers(resource):
            for image in kustomization.get("images", []):
                if container["image"].rpartition(":")[0] == image["name"]:
                    container["image"] = f"{image.get('newName', image['name'])}:{image['newTag']}"
    return resources


def pod(resource):
    return resource["spec"]["template"]["spec"] if "template" in resource.get("spec", {}) else None


def containers(resource):
    spec = pod(resource) or {}
    return spec.get("containers", []) + spec.get("initContainers", [])


EVERYTHING = built(DEPLOY / "example")
OPT_IN = built(DEPLOY / "restricted")
PODS = [r for r in EVERYTHING if pod(r)]
LIMITS = built(DEPLOY / "base" / "limits")
ZEUSD = {resource["kind"]: resource for resource in built(DEPLOY / "zeusd")}


def of_kind(kind):
    (found,) = [r for r in EVERYTHING if r["kind"] == kind]
    return found


def name_of(resource):
    return f"{resource['kind']}-{resource['metadata']['name']}"


def compiled_from_the_guide(word, folder):
    """Return what the pipeline of the guide's code that holds a word compiles to."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "cluster.md").read_text(), re.S)
    (code,) = [block for block in blocks if word in block]
    names = {}
    exec(code, names)
    path = folder / "pipeline.yaml"
    compiler.Compiler().compile(names["pipeline"], str(path))
    return yaml.safe_load_all(path.read_text())


def test_the_example_holds_everything_once():
    kinds = sorted(name_of(r) for r in EVERYTHING)
    assert kinds == [
        "Job-zeus-kfp-migration",
        "NetworkPolicy-zeus-kfp-postgres",
        "Role-zeus-kfp-runner",
        "RoleBinding-zeus-kfp-runner",
        "Service-zeus-kfp-postgres",
        "ServiceAccount-zeus-kfp-runner",
        "StatefulSet-zeus-kfp-postgres",
    ]
    files = {p for p in DEPLOY.rglob("*.yaml") if p.name != "kustomization.yaml"}
    others = [*OPT_IN, *LIMITS, *ZEUSD.values()]
    assert len(files) == len(kinds) + len(others), "a manifest that no kustomization names"


@pytest.mark.parametrize("version", ["1.30", "1.37"])
@pytest.mark.parametrize("resource", [*EVERYTHING, *OPT_IN, *LIMITS, *ZEUSD.values()], ids=name_of)
def test_a_manifest_is_what_kubernetes_takes(resource, version):
    kubernetes_validate.validate(resource, version, strict=True)


@pytest.mark.parametrize("resource", PODS, ids=name_of)
def test_pods_are_restricted(resource):
    spec = pod(resource)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & set(spec)
    assert spec["automountServiceAccountToken"] is False
    assert {kind for volume in spec.get("volumes", []) for kind in volume} - {"name"} <= RESTRICTED_VOLUMES
    for container in containers(resource):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["readOnlyRootFilesystem"] is True
        assert "privileged" not in context
        assert not any("hostPort" in port for port in container.get("ports", []))
        assert "memory" in container["resources"]["limits"]
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert ":" in container["image"] and not container["image"].endswith(":latest")


def test_no_pod_gets_a_sidecar_of_istio():
    labels = [resource["spec"]["template"]["metadata"]["labels"] for resource in PODS]
    assert [label["sidecar.istio.io/inject"] for label in labels] == ["false", "false"]


def test_the_opt_in_refuses_pods_that_are_not_restricted_and_the_guide_tells_how_steps_become_so(tmp_path):
    (namespace,) = OPT_IN
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    spec, platform = compiled_from_the_guide("set_security_context", tmp_path)
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert set(executors) == set(spec["deploymentSpec"]["executors"])
    assert all(executor["securityContext"] == {"runAsNonRoot": True} for executor in executors.values())


def test_passwords_come_from_the_secret_that_the_pipeline_reads():
    assert not [r for r in EVERYTHING if r["kind"] == "Secret"]
    references = [
        (variable["name"], variable["valueFrom"]["secretKeyRef"])
        for resource in PODS
        for container in containers(resource)
        for variable in container["env"]
        if "valueFrom" in variable
    ]
    assert dict(references) == {
        "POSTGRES_PASSWORD": {"name": pipeline.STORE_SECRET, "key": "password"},
        pipeline.STORE_VARIABLE: {"name": pipeline.STORE_SECRET, "key": pipeline.STORE_SECRET_KEY},
    }


def test_the_database_is_reached_by_steps_that_keep_books_and_the_migration_alone():
    policy, job, database = (of_kind(kind) for kind in ("NetworkPolicy", "Job", "StatefulSet"))
    labels = database["spec"]["template"]["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    (rule,) = policy["spec"]["ingress"]
    selectors = [peer["podSelector"] for peer in rule["from"]]
    assert all(set(peer) == {"podSelector"} for peer in rule["from"])
    assert selectors[0] == {"matchLabels": {pipeline.STORE_LABEL: "true"}}
    assert selectors[1]["matchLabels"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
    assert (policy["spec"]["egress"], policy["spec"]["policyTypes"]) == ([], ["Ingress", "Egress"])


def test_the_service_finds_the_database_under_the_name_in_the_guide():
    service, database = of_kind("Service"), of_kind("StatefulSet")
    assert service["spec"]["selector"].items() <= database["spec"]["template"]["metadata"]["labels"].items()
    assert database["spec"]["serviceName"] == service["metadata"]["name"]
    (port,) = service["spec"]["ports"]
    assert f"@{service['metadata']['name']}:{port['port']}/zeus" in (ROOT / "docs" / "cluster.md").read_text()


def test_the_database_keeps_its_files_on_the_volume():
    spec = of_kind("StatefulSet")["spec"]
    (claim,) = spec["volumeClaimTemplates"]
    mounts = {m["name"]: m["mountPath"] for m in spec["template"]["spec"]["containers"][0]["volumeMounts"]}
    assert mounts[claim["metadata"]["name"]] == "/var/lib/postgresql"
    assert set(mounts) == {claim["metadata"]["name"], *(v["name"] for v in spec["template"]["spec"]["volumes"])}


def test_the_role_names_what_it_may_read_and_grants_nothing_wide():
    rules = of_kind("Role")["rules"]
    flat = {(verb, resource) for rule in rules for verb in rule["verbs"] for resource in rule["resources"]}
    assert "*" not in str(rules)
    assert flat == {
        ("create", "workflowtaskresults"),
        ("patch", "workflowtaskresults"),
        ("get", "configmaps"),
        ("get", "secrets"),
    }
    assert all("resourceNames" in rule for rule in rules if rule["apiGroups"] == [""])
    binding, account = of_kind("RoleBinding"), of_kind("ServiceAccount")
    assert binding["roleRef"]["name"] == of_kind("Role")["metadata"]["name"]
    assert [s["name"] for s in binding["subjects"]] == [account["metadata"]["name"]]


def test_the_guides_kustomization_runs_the_image_that_it_builds_and_compiles_with():
    guide = (ROOT / "docs" / "cluster.md").read_text()
    (changes,) = re.findall(r"```yaml\n(.*?)```", guide, re.S)
    (job,) = [r for r in built(DEPLOY / "example", **yaml.safe_load(changes)) if r["kind"] == "Job"]
    (container,) = containers(job)
    assert f"export ZEUS_KFP_IMAGE={container['image']}\n" in guide
    assert f"-t {container['image']} .\n" in guide
    assert f"namespace={job['metadata']['namespace']}\n" in guide


def test_the_images_are_of_this_version():
    (job,) = containers(of_kind("Job"))
    assert job["image"] == DEFAULT_IMAGE
    assert f"ARG VERSION={__version__}" in (DEPLOY / "Containerfile").read_text()


def containerfile():
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in lines]


def test_the_image_runs_as_nobody_in_an_empty_folder_without_pip():
    last = [i for i, (word, _) in enumerate(containerfile()) if word == "FROM"][-1]
    stage = containerfile()[last:]
    assert [value for word, value in stage if word == "USER"] == ["10001:10001"]
    assert stage.index(("USER", "10001:10001")) > max(i for i, (word, _) in enumerate(stage) if word == "RUN")
    assert [value for word, value in stage if word == "WORKDIR"] == ["/work"]
    assert [value for word, value in stage if word == "COPY"] == ["--from=build /opt/zeus-kfp /opt/zeus-kfp"]
    runs = " ".join(value for word, value in stage if word == "RUN")
    assert "pip uninstall" in runs and "pip install" not in runs
    labels = {
        label.split("=")[0] for word, value in stage if word == "LABEL" for label in value.split() if "=" in label
    }
    assert {f"org.opencontainers.image.{n}" for n in ("title", "description", "version", "licenses")} <= labels


def test_the_image_is_built_of_every_folder_of_the_library():
    copied = {
        source
        for word, value in containerfile()
        if word == "COPY" and not value.startswith("--")
        for source in value.split()[:-1]
    }
    assert all((ROOT / source).exists() for source in copied)
    rooms = set(re.findall(r"zeus_kfp\.\w+ = (\w+)", (ROOT / "setup.cfg").read_text()))
    assert rooms <= copied
    assert {"constraints.txt", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"} <= copied


@pytest.mark.parametrize("variant", ["cpu", "gpu"])
def test_both_variants_have_their_stages(variant):
    stages = {value.split(" AS ")[1] for word, value in containerfile() if word == "FROM" and " AS " in value}
    assert {f"build-{variant}", f"runtime-{variant}"} <= stages


def test_the_claim_for_limits_is_one_that_pods_of_several_nodes_can_share():
    [claim] = LIMITS
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert f'limits_claim="{claim["metadata"]["name"]}"' in (ROOT / "docs" / "power.md").read_text()


def test_zeusd_has_the_one_right_that_it_needs_in_a_namespace_of_its_own():
    spec = pod(ZEUSD["DaemonSet"])
    (container,) = containers(ZEUSD["DaemonSet"])
    context = container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    assert (context["runAsUser"], context["readOnlyRootFilesystem"], "privileged" in context) == (0, True, False)
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert spec["automountServiceAccountToken"] is False
    assert [set(volume) - {"name"} for volume in spec["volumes"]] == [{"secret"}]
    assert "nvidia.com/gpu" not in str(container["resources"]), "a GPU that it had would be training's no more"
    namespace = ZEUSD["Namespace"]["metadata"]
    assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert {r["metadata"].get("namespace", namespace["name"]) for r in ZEUSD.values()} == {namespace["name"]}


def test_zeusd_listens_where_the_guide_says_and_takes_nobody_without_a_token():
    (container,) = containers(ZEUSD["DaemonSet"])
    flags = dict(argument.split("=", 1) for argument in container["args"][1:])
    (port,) = container["ports"]
    assert flags["--tcp-bind-address"] == f"0.0.0.0:{port['hostPort']}"
    assert port["hostPort"] == port["containerPort"]
    assert set(flags["--enable"].split(",")) == {"gpu-read", "gpu-control"}
    guide = (ROOT / "docs" / "cluster.md").read_text()
    assert f"zeusd_port={port['hostPort']}" in guide
    (mount,), (volume,) = container["volumeMounts"], pod(ZEUSD["DaemonSet"])["volumes"]
    assert flags["--signing-key-path"] == f"{mount['mountPath']}/key"
    assert f"secret generic {volume['secret']['secretName']} --from-literal=key=" in guide.replace("\\\n  ", "")
    assert f"--signing-key-path {flags['--signing-key-path']}" in guide


def test_zeusd_takes_connections_from_steps_that_may_set_limits_alone():
    policy, daemons = ZEUSD["NetworkPolicy"]["spec"], ZEUSD["DaemonSet"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= daemons["template"]["metadata"]["labels"].items()
    assert daemons["selector"]["matchLabels"].items() <= daemons["template"]["metadata"]["labels"].items()
    (rule,) = policy["ingress"]
    assert rule["from"] == [{"namespaceSelector": {}, "podSelector": {"matchLabels": {ZEUSD_LABEL: "true"}}}]
    assert [port["port"] for port in rule["ports"]] == [containers(ZEUSD["DaemonSet"])[0]["ports"][0]["name"]]
    assert (policy["egress"], policy["policyTypes"]) == ([], ["Ingress", "Egress"])


def test_the_guide_gives_the_token_to_training_and_to_the_exit_handler_and_to_no_other_step(tmp_path):
    _, platform = compiled_from_the_guide("zeusd_port", tmp_path)
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    given = {name for name, config in executors.items() if "ZEUSD_TOKEN" in str(config.get("secretAsEnv"))}
    labelled = {name for name, config in executors.items() if ZEUSD_LABEL in str(config.get("podMetadata"))}
    assert given == labelled
    assert {name.removeprefix("exec-").rstrip("-2") for name in given} == {"train-with-profiling", "close-recurrence"}
