"""`make image`: which builder is taken, and what is said where there is none."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("image", ROOT / "scripts" / "image.py")
image = importlib.util.module_from_spec(spec)
spec.loader.exec_module(image)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A machine with the programs that a test puts there."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def put(name, script):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    return put


def test_a_machine_without_a_builder_is_told_what_it_lacks(programs, capsys):
    programs("docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    assert image.main("build") == 3
    said = capsys.readouterr().err
    assert "docker does not work here: Cannot connect to the Docker daemon" in said
    assert "podman is not installed; buildah is not installed" in said
    assert "Fix: install docker, podman or buildah; or try `make image-rootfs`" in said


def test_the_first_builder_that_works_builds_the_dockerfile(programs, tmp_path, capfd):
    programs("docker", "exit 1")
    programs("podman", f'test "$1" = info || printf "%s\\n" "$@" > {tmp_path}/said')
    programs("buildah", f"touch {tmp_path}/wrong")
    assert image.main("build") == 0
    said = (tmp_path / "said").read_text().split()
    assert said[:5] == ["build", "--format", "docker", "-f", "deploy/Dockerfile"]
    assert said[-3:] == ["-t", f"leadhand:{image.version()}", "."]
    assert f"VERSION={image.version()}" in said
    assert not (tmp_path / "wrong").exists()


def test_a_base_image_that_cannot_be_pulled_has_another_way(programs, capsys):
    programs("podman", 'test "$1" = info')
    with pytest.raises(SystemExit) as ended:
        image.main("build")
    assert ended.value.code == 1
    assert "make image-rootfs" in capsys.readouterr().err


def test_the_rootfs_names_the_packages_that_it_needs(programs, capsys):
    programs("podman", "exit 0")
    assert image.main("rootfs") == 3
    said = capsys.readouterr().err
    assert said == (
        "leadhand: mmdebstrap, runc: not installed. Fix: apt-get install mmdebstrap runc\n"
    )


def test_a_runtime_that_cannot_start_containers_is_named(programs, tmp_path):
    programs("podman", "echo 'setrlimit: Operation not permitted' >&2; exit 126")
    programs("runc", "")
    with pytest.raises(image.Missing) as missing:
        image.Podman(tmp_path).choose("base")
    assert "default runtime: setrlimit: Operation not permitted" in str(missing.value)
    assert "crun is not installed" in str(missing.value)
    assert "runc: setrlimit" in str(missing.value)


def test_a_wrong_use_is_told():
    command = ["python3", ROOT / "scripts" / "image.py", "push"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "usage: image.py build|rootfs\n")
