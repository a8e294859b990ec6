"""Build the image of deploy/Dockerfile: `python3 scripts/image.py build|rootfs`.

    build     with docker, podman or buildah, on the base image that the Dockerfile names
    rootfs    on a base of Debian's packages (mmdebstrap), for machines that can pull no image;
              then podman runs the image as its own user, with a read-only root, and it is checked

Standard library only. `rootfs` takes minutes, and needs root or a user with subordinate ids.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = "deploy/Dockerfile"
SUITE = "bookworm"
PACKAGES = "python3,python3-venv,python-is-python3,ca-certificates"
"""What the Dockerfile takes from its base image: `python` with `venv`, and certificates."""
CERTIFICATES = Path("/etc/ssl/certs")
RUNTIMES = ("", "crun", "runc")
"""Runtimes of podman, in the order in which they are tried; "" is podman's own choice."""
FORMAT = ("--format", "docker")
LIMIT = 4096
"""Open files, and processes, of a container: podman has lower limits than this process may have."""
STOP_SECONDS = 30
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
    """podman with storage of its own, so that nothing of it stays on the machine."""

    def __init__(self, folder: Path) -> None:
        self._base = ["podman", "--root", str(folder / "storage"), "--runroot", str(folder / "run")]
        self._base += ["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"]
        self.limits = limits()

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
            trial = [*self._base, *chosen, "run", *self.limits, *CONFINED, image, "true"]
            done = subprocess.run(trial, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                self._base += chosen
                say(f"podman starts containers with {runtime or 'its default runtime'}")
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


def rootfs() -> None:
    """Make a base from Debian's packages, build the Dockerfile on it, and check the image."""
    wanted = {"mmdebstrap": "mmdebstrap", "podman": "podman", "runc": "runc"}
    lacking = [package for name, package in wanted.items() if shutil.which(name) is None]
    if lacking:
        raise Missing(
            f"{', '.join(lacking)}: not installed. Fix: apt-get install {' '.join(lacking)}"
        )
    folder = Path(tempfile.mkdtemp(prefix="leadhand-image-"))
    try:
        _rootfs(folder)
    finally:
        # podman's files belong to other users of its namespace, if it is not run by root.
        undo = ["podman", "unshare", "rm", "-rf"] if os.getuid() else ["rm", "-rf"]
        subprocess.run([*undo, str(folder)], check=False)


def _rootfs(folder: Path) -> None:
    podman, began = Podman(folder), time.monotonic()
    base = folder / "base.tar"
    run(["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(base)])
    took(began, f"base of Debian {SUITE}")
    run(podman.command("import", str(base), "localhost/base:1"))
    base.unlink()
    podman.choose("localhost/base:1")
    began, image = time.monotonic(), f"localhost/leadhand:{version()}"
    settings = folder / "pip.conf"
    settings.write_text("[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n")
    # The certificates of this machine, for networks with an authority of their own.
    mounts = ["--volume", f"{settings}:/etc/pip.conf:ro"]
    if CERTIFICATES.is_dir():
        mounts += ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"]
    run(
        podman.command(
            *("build", "--layers=false", "--network", "host", *FORMAT, *podman.limits, *mounts),
            *("--build-arg", "BASE=localhost/base:1", *arguments(), "-t", image, "."),
        )
    )
    took(began, "image")
    check(podman, image)


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
    serve(podman, image)


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


def serve(podman: Podman, image: str) -> None:
    """Start the server, wait for the health check, stop it, and read the log of the next start."""
    name = "leadhand-check"
    confined = [each for each in CONFINED if each != "--rm"]
    command = podman.command(
        *("run", "--detach", "--name", name, *podman.limits, *confined),
        *("--tmpfs", "/tmp", "--volume", "leadhand-check:/var/lib/leadhand", image),  # noqa: S108
    )
    run(command)
    health = podman.command("exec", name, "python", "/opt/leadhand/healthcheck.py")
    began = time.monotonic()
    while subprocess.run(health, capture_output=True, check=False).returncode:
        if time.monotonic() - began > READY_SECONDS:
            run(podman.command("logs", name))
            raise Missing("the server in the container did not get ready")
        time.sleep(0.5)
    say(f"the server was ready {time.monotonic() - began:.1f} s after its container started")
    first = output(podman.command("exec", name, "cat", "/proc/1/cmdline")).split("\0")[0]
    hold("process 1", first, "/usr/bin/tini")
    run(podman.command("stop", "--time", str(STOP_SECONDS), name))
    (ended,) = json.loads(output(podman.command("inspect", "--type", "container", name)))
    hold("exit code after SIGTERM", ended["State"]["ExitCode"], 143)
    said = subprocess.run(
        podman.command("logs", name), capture_output=True, text=True, check=True
    ).stderr
    hold("drained by SIGTERM", "SIGTERM: no new steps start" in said, wanted=True)
    run(podman.command("rm", name))


def hold(what: str, found: object, wanted: object) -> None:
    """Compare, and say so."""
    if found != wanted:
        sys.exit(f"leadhand: {what}: {found!r}, and it must be {wanted!r}")
    say(f"{what}: {found!r}")


def run(command: list[str]) -> None:
    """Run, with what it says; end with its exit code if it fails."""
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(done.returncode)


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


def main(wanted: str) -> int:
    """Do what is wanted; 3 if this machine cannot."""
    try:
        {"build": build, "rootfs": rootfs}[wanted]()
    except Missing as missing:
        say(str(missing))
        return 3
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ("build", "rootfs"):
        sys.exit("usage: image.py build|rootfs")
    sys.exit(main(sys.argv[1]))
