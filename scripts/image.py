"""Build the image of deploy/Dockerfile: `python3 scripts/image.py build|rootfs|clean`.

    build     with docker, podman or buildah, on the base image that the Dockerfile names
    rootfs    on a base of Debian's packages (mmdebstrap), for machines that can pull no image;
              then podman runs the image as its own user, with a read-only root, and it is checked
    clean     remove what `rootfs` keeps in build/image: the base and the layers of the image

Standard library only. `rootfs` takes minutes the first time, and needs root or a user with
subordinate ids.
"""

import hashlib
import json
import os
import resource
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = "deploy/Dockerfile"
SUITE = "bookworm"
PACKAGES = "python3,python3-venv,python-is-python3,ca-certificates"
"""What the Dockerfile takes from its base image: `python` with `venv`, and certificates."""
MERGED = "/usr/share/mmdebstrap/hooks/merged-usr"
"""mmdebstrap's way to merge /usr at once; without it a package does, which needs all of perl."""
LEFT_OUT = ("doc", "info", "locale", "man")
"""Folders of /usr/share that no process of a container reads; licences stay."""
CERTIFICATES = Path("/etc/ssl/certs")
CACHE = ROOT / "build" / "image"
BASE_HOURS = 24
"""How long a base is used again: then Debian may have corrections that are not in it."""
DRIVERS = ("overlay", "vfs")
"""Drivers of podman's storage, in the order in which they are tried. vfs copies the whole image for
every container."""
RUNTIMES = ("", "crun", "runc")
"""Runtimes of podman, in the order in which they are tried; "" is podman's own choice."""
FORMAT = ("--format", "docker")
LIMIT = 4096
"""Open files, and processes, of a container: podman has lower limits than this process may have."""
COMPOSE = "deploy/compose.yaml"
PORT = 8787
STOP_SECONDS = 60
READY_SECONDS = 120


class Missing(RuntimeError):
    """What this machine lacks, in words for a person."""


def version() -> str:
    """The version of the package, which is the image's tag."""
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return found


def revision() -> str:
    """The commit of this checkout."""
    git = shutil.which("git")
    if git is None:
        return "unknown"
    command = [git, "-C", str(ROOT), "rev-parse", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def arguments() -> list[str]:
    """Arguments of every build."""
    told = [f"VERSION={version()}", f"REVISION={revision()}"]
    return ["-f", DOCKERFILE, *(part for each in told for part in ("--build-arg", each))]


def builder() -> list[str]:
    """The command of a builder that works here. Raise `Missing`, with what was found wanting."""
    tried = []
    for name, asks in (("docker", "version"), ("podman", "info"), ("buildah", "info")):
        program = shutil.which(name)
        if program is None:
            tried.append(f"{name} is not installed")
            continue
        done = subprocess.run([program, asks], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            # Without docker's format podman and buildah drop the health check.
            return [program, "build", *([] if name == "docker" else FORMAT)]
        tried.append(f"{name} does not work here: {last_line(done.stderr or done.stdout)}")
    raise Missing("; ".join(tried))


def last_line(text: str) -> str:
    """The last line that says something."""
    return (text.strip().splitlines() or ["no output"])[-1]


def build() -> None:
    """Build the image for this machine's architecture."""
    try:
        command = builder()
    except Missing as missing:
        raise Missing(
            f"no builder of images works here ({missing}). "
            "Fix: install docker, podman or buildah; or try `make image-rootfs`"
        ) from None
    build = [*command, *arguments(), "-t", f"leadhand:{version()}", "."]
    done = subprocess.run(build, cwd=ROOT, check=False)
    if done.returncode:
        say("the build failed. If the base image cannot be pulled here, try `make image-rootfs`")
        sys.exit(done.returncode)


class Podman:
    """podman with storage of its own: layers are used again, and it does not see other images.

    `folder` holds what ends with a container. podman wants one short path for it, always the same.
    """

    def __init__(self, folder: Path) -> None:
        storage = CACHE / "storage"
        self._base = ["podman", "--root", str(storage), "--runroot", str(folder)]
        self._base += ["--cgroup-manager", "cgroupfs"]
        self.driver = self._driver(storage)
        self._base += ["--storage-driver", self.driver]
        self.limits = limits()

    def _driver(self, storage: Path) -> str:
        """Return the first driver that can be used here. Raise `Missing` with every reason."""
        reasons = []
        for driver in DRIVERS:
            done = quiet([*self._base, "--storage-driver", driver, "info"])
            if done.returncode == 0:
                return driver
            reasons.append(f"{driver}: {last_line(done.stderr)}")
            # podman does not open a store with another driver than the first one that tried it.
            remove(storage)
        raise Missing(f"podman can store no image here ({'; '.join(reasons)})")

    def command(self, *args: str) -> list[str]:
        """The arguments of a podman command."""
        return [*self._base, *args]

    def choose(self, image: str) -> None:
        """Take the first runtime that can start a container. Raise `Missing` with every reason."""
        reasons = []
        for runtime in RUNTIMES:
            if runtime and shutil.which(runtime) is None:
                reasons.append(f"{runtime} is not installed")
                continue
            chosen = ["--runtime", runtime] if runtime else []
            done = quiet([*self._base, *chosen, "run", *self.limits, *CONFINED, image, "true"])
            if done.returncode == 0:
                self._base += chosen
                who = "root" if os.getuid() == 0 else "a user without rights"
                how = f"{runtime or 'its default runtime'}, storage {self.driver}"
                say(f"podman of {who} starts containers with {how}")
                return
            reasons.append(f"{runtime or 'default runtime'}: {last_line(done.stderr)}")
        raise Missing(f"podman can start no container here ({'; '.join(reasons)})")


CONFINED = ("--rm", "--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges")
CONFINED += ("--network", "none")


def limits() -> list[str]:
    """No higher limits than this process has: podman may not be allowed to raise them."""
    found = []
    for name, which in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        hard = resource.getrlimit(which)[1]
        value = LIMIT if hard == resource.RLIM_INFINITY else min(hard, LIMIT)
        found += ["--ulimit", f"{name}={value}:{value}"]
    return found


def lacking() -> list[str]:
    """Return the Debian packages that `rootfs` needs and this machine does not have."""
    wanted = {"mmdebstrap": "mmdebstrap", "podman": "podman"}
    if os.getuid():
        wanted["newuidmap"] = "uidmap"
    found = [package for name, package in wanted.items() if shutil.which(name) is None]
    # One is enough, and which one works depends on the cgroups of the machine; podman brings crun.
    return found if shutil.which("runc") or shutil.which("crun") else [*found, "runc"]


def rootfs() -> None:
    """Make a base from Debian's packages, build the Dockerfile on it, and check the image."""
    if packages := lacking():
        raise Missing(
            f"{', '.join(packages)}: not installed. Fix: apt-get install {' '.join(packages)}"
        )
    CACHE.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    say(f"1 of 4: a base of Debian {SUITE}")
    base = debian()
    took(began, "base")
    say("2 of 4: import the base, and find a runtime that works here")
    podman, started = Podman(short_folder()), time.monotonic()
    name = f"localhost/{base.stem}:1"
    if quiet(podman.command("image", "exists", name)).returncode:
        run(podman.command("import", str(base), name))
    podman.choose(name)
    took(started, "import")
    started, image = time.monotonic(), f"localhost/leadhand:{version()}"
    say(f"3 of 4: build {DOCKERFILE}")
    # buildah keeps the cache of `RUN --mount=type=cache` in the folder of temporary files.
    run(build_command(podman, name, image), TMPDIR=str(CACHE))
    took(started, "build")
    started = time.monotonic()
    say("4 of 4: run the image, and check what it does")
    try:
        check(podman, image)
        serve(podman, image)
        compose(podman)
    finally:
        # What is left if a check failed: layers stay for the next build.
        quiet(podman.command("rm", "--all", "--force", "--time", "0"))
        quiet(podman.command("volume", "prune", "--force"))
    took(started, "checks")
    took(began, "all of it")


def short_folder() -> Path:
    """Return a folder for sockets of containers. Raise `Missing` if it belongs to somebody else."""
    mark = hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]
    folder = Path(tempfile.gettempdir()) / f"leadhand-image-{os.getuid()}-{mark}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        raise Missing(f"{folder} belongs to another user. Fix: remove it, or set TMPDIR")
    return folder


def clean() -> None:
    """Remove everything that `rootfs` keeps."""
    remove(CACHE)
    remove(short_folder())


def remove(folder: Path) -> None:
    """Remove a folder of podman, whose files may belong to users of its namespace."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists() and os.getuid() and shutil.which("podman"):
        quiet(["podman", "unshare", "rm", "-rf", str(folder)])
    if folder.exists():
        raise Missing(f"{folder} cannot be removed. Fix: remove it as the user who made it")


def debian() -> Path:
    """Return the file of a base system; one of the last hours is used again."""
    recipe = ["--variant=minbase", f"--include={PACKAGES}"]
    recipe += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in LEFT_OUT]
    recipe.append("--dpkgopt=path-include=/usr/share/doc/*/copyright")
    # As in Debian's own images: apt's indexes would be 70 MB of a layer.
    recipe += [f'--aptopt=Dir::Cache::{name} ""' for name in ("pkgcache", "srcpkgcache")]
    if Path(MERGED).is_dir():
        recipe.append(f"--hook-dir={MERGED}")
    key = hashlib.sha256(json.dumps([SUITE, recipe]).encode()).hexdigest()[:12]
    base = CACHE / f"base-{key}.tar"
    if base.exists() and time.time() - base.stat().st_mtime < BASE_HOURS * 3600:
        say(f"the base of {time.ctime(base.stat().st_mtime)} is used again: {base}")
        return base
    for old in CACHE.glob("base-*"):
        old.unlink()
    unfinished = base.with_suffix(".new")
    run(["mmdebstrap", "--format=tar", *recipe, SUITE, str(unfinished)])
    return unfinished.replace(base)


def build_command(podman: Podman, base: str, image: str) -> list[str]:
    """Return the command that builds the Dockerfile on a base.

    The build gets the certificates of this machine, for networks with an authority of their own.
    """
    settings = CACHE / "pip.conf"
    settings.write_text("[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n")
    mounts = ["--volume", f"{settings}:/etc/pip.conf:ro"]
    if CERTIFICATES.is_dir():
        mounts += ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"]
    return podman.command(
        *("build", "--layers", "--network", "host", *FORMAT, *podman.limits, *mounts),
        *("--build-arg", f"BASE={base}", *arguments(), "-t", image, "."),
    )


def check(podman: Podman, image: str) -> None:
    """Run the image as a container is run in production, and compare what it does."""
    (found,) = json.loads(output(podman.command("inspect", "--type", "image", image)))
    config = found["Config"]
    hold("user of the image", config["User"], "10001:10001")
    # podman shows it beside the configuration, docker inside.
    health = found.get("Healthcheck") or config.get("Healthcheck") or {}
    hold("health check of the image", bool(health.get("Test")), wanted=True)
    hold("label of the version", config["Labels"]["org.opencontainers.image.version"], version())
    say(f"the image has {found['Size'] / 1e6:.0f} MB")
    once = podman.command("run", *podman.limits, *CONFINED, "--tmpfs", "/tmp", image)  # noqa: S108
    hold("leadhand --version", output([*once, "--version"]).split()[-1], version())
    outside = podman.command(
        *("run", *podman.limits, *CONFINED, "--entrypoint", "python", image, "-c", WRITES)
    )
    hold("user, and errors of writes outside the volume", output(outside).split(), WRITTEN)


WRITES = """
import os
print(os.getuid())
for path in ("/x", "/etc/leadhand/x", "/opt/leadhand/x", "/usr/x"):
    try:
        open(path, "w")
    except OSError as error:
        print(error.errno)
"""
WRITTEN = ["10001", "30", "30", "30", "30"]
"""The user, and EROFS four times."""


SETTINGS = """
[workers.greet]
command = ["echo", "hello {name}"]
idempotent = true

[workers.wait]
command = ["sleep", "{seconds}"]
"""
PLAN = """
steps:
  - {id: greet, worker: greet, parameters: {name: container}, success_criteria: data.exit_code == 0}
"""
SLOW = """
import glob, json, pathlib, time, urllib.request
token = pathlib.Path(glob.glob("/var/lib/leadhand/.leadhand/*.token")[0]).read_text().strip()
step = {"id": "slow", "worker": "wait", "parameters": {"seconds": 5}}
def ask(path, body=None):
    data = json.dumps(body).encode() if body else None
    said = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
    request = urllib.request.Request("http://127.0.0.1:8787/api/v1" + path, data, said)
    return json.load(urllib.request.urlopen(request, timeout=30))
run = ask("/runs", {"plan": {"steps": [step]}})["run"]
while not ask("/runs/" + run)["steps"][0].get("attempts"):
    time.sleep(0.1)
print(run)
"""
"""Starts a run of the server itself, and returns while its step is at work."""


def serve(podman: Podman, image: str) -> None:
    """Start the server, work with it, stop it in the middle of a step, and start it again."""
    name, settings = "leadhand-check", CACHE / "config"
    settings.mkdir(mode=0o755, exist_ok=True)
    (settings / "config.toml").write_text(SETTINGS)
    (settings / "plan.yaml").write_text(PLAN)
    confined = [each for each in CONFINED if each != "--rm"]
    run(
        podman.command(
            *("run", "--detach", "--name", name, *podman.limits, *confined),
            *("--tmpfs", "/tmp", "--volume", "leadhand-check:/var/lib/leadhand"),  # noqa: S108
            *("--volume", f"{settings}:/etc/leadhand:ro", image),
        )
    )
    inside = podman.command("exec", name)
    ready(podman, name)
    first = output([*inside, "cat", "/proc/1/cmdline"]).split("\0")[0]
    hold("process 1", first, "/usr/bin/tini")
    said = output([*inside, "leadhand", "run", "--quiet", "/etc/leadhand/plan.yaml"])
    hold("a run by exec", json.loads(said)["stdout"], "hello container\n")
    slow = output([*inside, "python", "-c", SLOW]).strip()
    run(podman.command("stop", "--time", str(STOP_SECONDS), name))
    (ended,) = json.loads(output(podman.command("inspect", "--type", "container", name)))
    hold("exit code after SIGTERM", ended["State"]["ExitCode"], 143)
    logged = quiet(podman.command("logs", name)).stderr
    hold("drained by SIGTERM", "SIGTERM: no new steps start" in logged, wanted=True)
    run(podman.command("start", name))
    ready(podman, name)
    runs = json.loads(output([*inside, "leadhand", "ls", "--json"]))
    found = {each["run"]: each["status"] for each in runs}
    hold("runs after a new start", sorted(found.values()), ["succeeded", "succeeded"])
    attempts = json.loads(output([*inside, "leadhand", "show", slow, "--json"]))["steps"]
    hold("attempts of the step that SIGTERM met", attempts[0]["attempts"], 1)
    run(podman.command("rm", "--force", "--time", str(STOP_SECONDS), name))


def compose(podman: Podman) -> None:
    """Start deploy/compose.yaml by podman-compose, ask the published port, and end it again."""
    program = shutil.which("podman-compose")
    with socket.socket() as trial:
        taken = trial.connect_ex(("127.0.0.1", PORT)) == 0
    if program is None or taken:
        why = f"port {PORT} is in use" if taken else "podman-compose is not installed"
        say(f"{COMPOSE}: not run, {why}")
        return
    own, limited = CACHE / "podman", CACHE / "containers.conf"
    ulimits = [each for each in podman.limits if each != "--ulimit"]
    limited.write_text(f"[containers]\ndefault_ulimits = {json.dumps(ulimits)}\n")
    words = shlex.join(podman.command())
    own.write_text(f'#!/bin/sh\nexport CONTAINERS_CONF={limited}\nexec {words} "$@"\n')
    own.chmod(0o700)
    composed = [program, "--podman-path", str(own), "--file", COMPOSE]
    try:
        run([*composed, "up", "--detach"])
        ready(podman, "deploy_leadhand_1")
        asked = urllib.request.Request(f"http://127.0.0.1:{PORT}/readyz")
        with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310
            hold(f"{COMPOSE}, asked from outside", answer.read(), b"ready\n")
        outside = podman.command("exec", "deploy_leadhand_1", "python", "-c", WRITES)
        hold(f"{COMPOSE}, user and writes", output(outside).split(), WRITTEN)
    finally:
        quiet([*composed, "down", "--volumes", "--timeout", "20"])


def ready(podman: Podman, name: str) -> None:
    """Wait until the health check of a container holds."""
    health = podman.command("exec", name, "python", "/opt/leadhand/healthcheck.py")
    began = time.monotonic()
    while quiet(health).returncode:
        if time.monotonic() - began > READY_SECONDS:
            run(podman.command("logs", name))
            raise Missing("the server in the container did not get ready")
        time.sleep(0.5)
    say(f"the server was ready {time.monotonic() - began:.1f} s after its container started")


def hold(what: str, found: object, wanted: object) -> None:
    """Compare, and say so."""
    if found != wanted:
        sys.exit(f"leadhand: {what}: {found!r}, and it must be {wanted!r}")
    say(f"{what}: {found!r}")


def run(command: list[str], **variables: str) -> None:
    """Run, with what it says; end with its exit code if it fails."""
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=False)
    if done.returncode:
        sys.exit(done.returncode)


def quiet(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run without a word; return how it went."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def output(command: list[str]) -> str:
    """What a command prints; end, with what it said, if it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"leadhand: {' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def took(began: float, what: str) -> None:
    """Say how long something took."""
    say(f"{what}: {time.monotonic() - began:.0f} s")


def say(text: str) -> None:
    """Tell the person at the terminal."""
    print(f"leadhand: {text}", file=sys.stderr, flush=True)


COMMANDS = {"build": build, "rootfs": rootfs, "clean": clean}


def main(wanted: str) -> int:
    """Do what is wanted; 3 if this machine cannot."""
    try:
        COMMANDS[wanted]()
    except Missing as missing:
        say(str(missing))
        return 3
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in COMMANDS:
        sys.exit("usage: image.py build|rootfs|clean")
    sys.exit(main(sys.argv[1]))
