"""deploy/: Dockerfile, compose files and Kubernetes manifests, by their linters and our rules."""

import json
import re
import shutil
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
COMPOSE = sorted(DEPLOY.glob("compose*.yaml"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
USER = 10001


def objects(kind=None):
    """Every Kubernetes object, or those of a kind."""
    found = [each for path in MANIFESTS for each in yaml.safe_load_all(path.read_text())]
    return [each for each in found if kind in (None, each["kind"])]


def instructions():
    """The Dockerfile as pairs of an instruction and its text, without comments."""
    text = re.sub(r"(?m)^#.*\n", "", DOCKERFILE.read_text()).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def texts(name):
    return [text for instruction, text in instructions() if instruction == name]


# --- the Dockerfile ------------------------------------------------------------------------------


def test_hadolint_finds_nothing(linter, tmp_path):
    """And it does find something in a Dockerfile that is wrong."""
    assert linter("hadolint", DOCKERFILE) == (0, "")
    wrong = tmp_path / "Dockerfile"
    wrong.write_text(DOCKERFILE.read_text().replace("--no-install-recommends", ""))
    code, said = linter("hadolint", wrong)
    assert code
    assert "DL3015" in said


def test_the_image_is_not_root_and_has_a_health_check():
    assert texts("USER") == [f"{USER}:{USER}"]
    assert texts("VOLUME") == ['["/var/lib/leadhand"]']
    (check,) = texts("HEALTHCHECK")
    assert check.endswith('CMD ["python", "/opt/leadhand/healthcheck.py"]')
    (entry,) = map(json.loads, texts("ENTRYPOINT"))
    assert entry == ["/usr/bin/tini", "--", "python", "/opt/leadhand/entrypoint.py"]
    assert json.loads(texts("CMD")[0]) == ["serve"]
    names = [instruction for instruction, _ in instructions()]
    assert names.index("USER") > max(at for at, name in enumerate(names) if name == "RUN")
    assert "ADD" not in names


def test_only_locked_packages_are_installed():
    """By hash, without an index in the file; the project itself without its dependencies."""
    installs = re.findall(r"pip (?:--python \S+ )?install ([^&]*)", " ".join(texts("RUN")))
    assert len(installs) == 3
    for each in installs:
        assert "--require-hashes -r requirements/" in each or "--no-deps --no-index" in each
    assert "://" not in DOCKERFILE.read_text()
    lock = (ROOT / "requirements" / "image.txt").read_text()
    packages = [line for line in lock.splitlines() if "==" in line]
    assert all(line.endswith(" \\") for line in packages)
    tested = (ROOT / "requirements" / "dev.txt").read_text()
    assert not [line for line in packages if line not in tested], "other versions than the tests'"


def test_the_builder_gets_what_is_copied_and_nothing_else():
    """`.dockerignore` leaves everything out but the sources of COPY."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and line[0] != "#"]
    assert rules[0] == "*"
    passed = [line[1:] for line in rules if line.startswith("!")]
    copied = [
        source for text in texts("COPY") if "--from=" not in text for source in text.split()[:-1]
    ]
    assert sorted(passed) == sorted(copied)
    assert all((ROOT / each).exists() for each in copied)
    hidden = [line for line in rules[1:] if not line.startswith("!")]
    for secret in ("src/x.db", "src/x.db.token", "src/a/.leadhand", "src/a/__pycache__"):
        assert any(fnmatch(secret, each) for each in hidden), secret


def test_the_version_is_the_package_s_everywhere():
    assert f"VERSION={VERSION}" in texts("ARG")
    found = re.findall(
        r"image: leadhand:(\S+)", "".join(path.read_text() for path in (*COMPOSE, *MANIFESTS))
    )
    assert len(found) >= 6
    assert set(found) == {VERSION}


def test_an_image_has_a_tag_that_stays():
    bases = re.findall(r"ARG BASE=(\S+)", DOCKERFILE.read_text())
    images = re.findall(r"image: (\S+)", "".join(path.read_text() for path in COMPOSE))
    for each in (*bases, *images):
        name, _, tag = each.partition(":")
        assert re.search(r"\d", tag), each
        assert "." not in name.partition("/")[0], "no host of a registry"


# --- compose -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.stem)
def test_compose_files_are_valid(linter, path, tmp_path):
    """By the schema of the compose specification; by `docker compose` too, where there is one."""
    check = ("check-jsonschema", "--builtin-schema", "vendor.compose-spec")
    code, said = linter(*check, path)
    assert code == 0, said
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(path.read_text().replace("read_only:", "readonly:"))
    assert linter(*check, wrong)[0]
    docker = shutil.which("docker")
    known = docker and subprocess.run(
        [docker, "compose", "version"], capture_output=True, check=False
    )
    if known and known.returncode == 0:
        environ = {"PATH": "/usr/bin:/bin", "LEADHAND_HOST": "x.example", "TEMPORAL_PASSWORD": "x"}
        command = [docker, "compose", "--file", path, "config", "--quiet"]
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr


def services():
    return [
        pytest.param(path, service, id=f"{path.stem}-{name}")
        for path in COMPOSE
        for name, service in yaml.safe_load(path.read_text())["services"].items()
    ]


@pytest.mark.parametrize(("path", "service"), services())
def test_services_have_few_rights(path, service):
    assert "no-new-privileges:true" in service["security_opt"]
    assert not service.get("privileged")
    assert "network_mode" not in service
    if service["image"].startswith("leadhand:"):
        assert service["read_only"] is True
        assert service["user"] == f"{USER}:{USER}"
        assert service["cap_drop"] == ["ALL"]
        assert service["tmpfs"][0].startswith("/tmp:")
        assert "./config:/etc/leadhand:ro" in service["volumes"]
    for port in service.get("ports", ()):
        proxy = service["image"].startswith("caddy:")
        assert proxy or port.startswith("127.0.0.1:"), "others must come through TLS"


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.stem)
def test_what_compose_files_name_is_there(path):
    """Files of services, except the passwords that people make; volumes and secrets of the file."""
    doc = yaml.safe_load(path.read_text())
    for service in doc["services"].values():
        for each in service.get("volumes", ()):
            source = each.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).exists(), source
            else:
                assert source in doc["volumes"]
        assert set(service.get("secrets", ())) <= set(doc.get("secrets", {}))
        for name in service.get("depends_on", {}):
            assert name in doc["services"]
    named = {each["file"] for each in doc.get("secrets", {}).values()}
    assert all(each.startswith("./secrets/") for each in named)
    assert "/deploy/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


# --- Kubernetes ----------------------------------------------------------------------------------


def test_manifests_are_valid(linter, tmp_path):
    """By Kubernetes' own schemas, which allow no unknown field."""
    code, said = linter("kubernetes-validate", "--strict", *MANIFESTS)
    assert code == 0, said
    assert said.count(" passed ") == len(objects())
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(
        (DEPLOY / "kubernetes/server.yaml").read_text().replace("runAsUser", "runUser")
    )
    assert linter("kubernetes-validate", "--strict", wrong)[0]


@pytest.mark.parametrize("found", objects("Deployment"), ids=lambda each: each["metadata"]["name"])
def test_pods_keep_the_restricted_standard(found):
    """https://kubernetes.io/docs/concepts/security/pod-security-standards: restricted, and more."""
    pod = found["spec"]["template"]["spec"]
    outer = pod["securityContext"]
    assert outer["runAsNonRoot"] is True
    assert outer["runAsUser"] == outer["runAsGroup"] == outer["fsGroup"] == USER
    assert outer["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    kinds = {key for volume in pod["volumes"] for key in volume} - {"name"}
    assert kinds <= {"configMap", "emptyDir", "secret", "persistentVolumeClaim"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(container)
    assert "limits" in container["resources"]
    mounted = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert {"/tmp", "/var/lib/leadhand", "/etc/leadhand"} <= set(mounted)
    assert {each["name"] for each in mounted.values()} == {each["name"] for each in pod["volumes"]}


def test_labels_lead_to_the_pods():
    """Of deployments, services and network policies; and nobody comes in unasked."""
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in objects("Deployment")
    }
    for each in objects("Deployment"):
        assert each["spec"]["selector"]["matchLabels"] == pods[each["metadata"]["name"]]
    for service in objects("Service"):
        chosen = service["spec"]["selector"].items()
        assert any(chosen <= labels.items() for labels in pods.values())
    policies = objects("NetworkPolicy")
    assert policies[0]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for policy in policies[1:]:
        chosen = policy["spec"]["podSelector"].get("matchLabels", {}).items()
        assert any(chosen <= labels.items() for labels in pods.values()), policy["metadata"]
        open_ways = [rule for rule in policy["spec"].get("ingress", ()) if "from" not in rule]
        assert not open_ways, "everybody could come in"
    assert {each["metadata"]["namespace"] for each in objects() if each["kind"] != "Namespace"} == {
        "leadhand"
    }


def test_a_log_in_a_file_has_one_host():
    (server,) = [e for e in objects("Deployment") if e["metadata"]["name"] == "leadhand-server"]
    assert server["spec"]["replicas"] == 1
    assert server["spec"]["strategy"] == {"type": "Recreate"}
    (claim,) = objects("PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]


# --- the lock of the image -----------------------------------------------------------------------

NOT_IN_THE_IMAGE = {
    "fleet": "fleets need git and coding agents, which the image does not have",
    "map": "only a fleet's planner reads the symbols of a repository",
}
"""Extras that the image leaves out, and why."""


def lock_lags(pyproject, lock, makefile):
    """Return what the lock of the image lacks of what the project wants, in words."""
    project = tomllib.loads(pyproject)["project"]
    extras = project["optional-dependencies"]
    (recipe,) = [line for line in makefile.splitlines() if "requirements/image.txt" in line]
    asked = set(re.findall(r"--extra (\S+)", recipe))
    wanted = set(extras) - set(NOT_IN_THE_IMAGE)
    lagging = [f"`make lock` does not name the extra {name}" for name in sorted(wanted - asked)]
    lagging += [f"`make lock` names {name}, which is no extra" for name in asked - set(extras)]
    pinned = dict(re.findall(r"(?m)^([a-z0-9.-]+)==(\S+)", lock))
    for text in [*project["dependencies"], *(each for name in wanted for each in extras[name])]:
        needed = Requirement(text)
        found = pinned.get(canonicalize_name(needed.name))
        if found is None or not needed.specifier.contains(found, prereleases=True):
            lagging.append(f"{text}: image.txt has {found}")
    return lagging


def test_the_lock_of_the_image_has_every_extra():
    """And it is noticed when one of them is new, newer, or left out of `make lock`."""
    read = [(ROOT / name).read_text() for name in ("pyproject.toml", "requirements/image.txt")]
    pyproject, lock, makefile = *read, (ROOT / "Makefile").read_text()
    assert lock_lags(pyproject, lock, makefile) == [], "run: make lock"
    assert set(NOT_IN_THE_IMAGE) <= set(
        tomllib.loads(pyproject)["project"]["optional-dependencies"]
    )
    new = pyproject.replace('mcp = ["mcp', 'chat = ["chat-sdk>=1"]\nmcp = ["mcp', 1)
    assert lock_lags(new, lock, makefile) == [
        "`make lock` does not name the extra chat",
        "chat-sdk>=1: image.txt has None",
    ]
    newer = re.sub(r"temporalio>=[\d.]+", "temporalio>=99", pyproject)
    (said,) = lock_lags(newer, lock, makefile)
    assert said.startswith("temporalio>=99: image.txt has ")
    assert lock_lags(pyproject, lock, makefile.replace("--extra sign --extra telemetry", ""))
