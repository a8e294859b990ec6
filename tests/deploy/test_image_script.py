"""`make image`: which builder is taken, and what is said where there is none."""

import importlib.util
import os
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
    monkeypatch.setattr(image, "CACHE", tmp_path / "cache")

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
    lacking = ["mmdebstrap", *(["uidmap"] if os.getuid() else []), "runc"]
    said = f"{', '.join(lacking)}: not installed. Fix: apt-get install {' '.join(lacking)}"
    assert capsys.readouterr().err == f"leadhand: {said}\n"
    programs("crun", "")
    programs("mmdebstrap", "exit 7")
    programs("newuidmap", "")
    with pytest.raises(SystemExit) as ended:  # nothing lacks now
        image.main("rootfs")
    assert ended.value.code == 7


def test_a_storage_driver_that_does_not_work_is_passed_over(programs, tmp_path):
    """And nothing is left of its trial, which would keep the next one from being used."""
    left = tmp_path / "cache" / "storage" / "left"
    programs(
        "podman",
        f'case "$*" in *overlay*) /bin/mkdir -p {left}; echo no overlay here >&2; exit 1;; esac\n'
        f"/usr/bin/test ! -e {left} || exit 1",
    )
    assert image.Podman(tmp_path / "run").driver == "vfs"
    programs("podman", "echo no space >&2; exit 1")
    with pytest.raises(image.Missing, match="overlay: no space; vfs: no space"):
        image.Podman(tmp_path / "run")


def test_a_base_is_used_again_for_a_day(programs, tmp_path):
    """A base that was not finished is not, and an older one goes."""
    programs("mmdebstrap", f'for last; do :; done; echo x >> {tmp_path}/made; echo "$@" > "$last"')
    image.CACHE.mkdir()
    (image.CACHE / "base-0123456789ab.tar").write_text("another recipe")
    base = image.debian()
    assert [base] == list(image.CACHE.iterdir())
    assert "--variant=minbase" in base.read_text()
    assert image.debian() == base
    os.utime(base, (0, 0))
    assert image.debian() == base
    assert (tmp_path / "made").read_text() == "x\nx\n"
    programs("mmdebstrap", 'for last; do :; done; echo half > "$last"; exit 1')
    os.utime(base, (0, 0))
    with pytest.raises(SystemExit):
        image.debian()
    assert not list(image.CACHE.glob("*.tar"))


def test_clean_removes_what_is_kept(programs, tmp_path, monkeypatch):
    monkeypatch.setattr(image.tempfile, "tempdir", str(tmp_path))
    (image.CACHE / "storage").mkdir(parents=True)
    assert image.main("clean") == 0
    assert not image.CACHE.exists()
    assert not list(tmp_path.glob("leadhand-image-*"))


def test_a_folder_of_somebody_else_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(image.tempfile, "tempdir", str(tmp_path))
    folder = image.short_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()
    folder.symlink_to("/")
    with pytest.raises(image.Missing, match="belongs to another user"):
        image.short_folder()


def test_a_runtime_that_cannot_start_containers_is_named(programs, tmp_path):
    refused = "echo 'setrlimit: Operation not permitted' >&2; exit 126"
    programs("podman", f'for last; do :; done; test "$last" = info || {{ {refused}; }}')
    programs("runc", "")
    with pytest.raises(image.Missing) as missing:
        image.Podman(tmp_path).choose("base")
    assert "default runtime: setrlimit: Operation not permitted" in str(missing.value)
    assert "crun is not installed" in str(missing.value)
    assert "runc: setrlimit" in str(missing.value)


def test_a_wrong_use_is_told():
    command = ["python3", ROOT / "scripts" / "image.py", "push"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "usage: image.py build|rootfs|clean\n")
