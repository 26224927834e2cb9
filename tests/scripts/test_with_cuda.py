"""Test the entrypoint of CUDA images: it uses the libcuda for forward compatibility only below the driver floor.

The command runs in any case.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "dockerfiles/rootfs/cuda/opt/trainwright/bin/with-cuda"
OLD = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\nGCC version: 12.3.0\n"
FLOOR = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder)\n"
NEWER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  1000.10  Release Build  (dvs-builder)\n"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Lay out the files that the entrypoint uses in an image: itself, CUDA's version and the driver floor."""
    for folder in ("bin", "cuda", "compat"):
        (tmp_path / folder).mkdir()
    shutil.copy(SCRIPT, tmp_path / "bin")
    (tmp_path / "cuda/version").write_text("13.2.2\n")
    (tmp_path / "cuda/driver-floor").write_text("580\n")
    return tmp_path


def start(image: Path, driver: str | None, *, compat: bool, before: str = "") -> tuple[str, str]:
    """Run a command that prints LD_LIBRARY_PATH; return its standard output and error."""
    (image / "driver").write_text(driver or "")
    if driver is None:
        (image / "driver").unlink()
    if compat:
        (image / "compat/libcuda.so.1").touch()
    options = ["--driver", str(image / "driver"), "--compat", str(image / "compat")]
    done = subprocess.run(
        [str(image / "bin/with-cuda"), *options, "sh", "-c", 'echo "${LD_LIBRARY_PATH-unset}"'],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", **({"LD_LIBRARY_PATH": before} if before else {})},
    )
    return done.stdout.strip(), done.stderr


@pytest.mark.parametrize("driver", [None, "", FLOOR, NEWER], ids=["no GPU", "unreadable", "at the floor", "above it"])
def test_the_driver_of_the_host_is_left_alone(image: Path, driver: str | None) -> None:
    assert start(image, driver, compat=True) == ("unset", "")


def test_below_the_floor_the_mounted_library_is_used(image: Path) -> None:
    path, said = start(image, OLD, compat=True)
    assert path == str(image / "compat")
    assert said.count("\n") == 1
    assert "535.183.01 is older than 580, which CUDA 13.2.2 requires" in said


def test_what_was_on_the_path_before_stays(image: Path) -> None:
    assert start(image, OLD, compat=True, before="/mine")[0] == f"{image}/compat:/mine"


def test_below_the_floor_without_a_library_it_says_so_and_runs(image: Path) -> None:
    path, said = start(image, OLD, compat=False)
    assert path == "unset"
    assert said.count("\n") == 1
    assert "CUDA will fail to start" in said


def test_it_becomes_the_command(image: Path) -> None:
    done = subprocess.run([str(image / "bin/with-cuda"), "sh", "-c", "exit 7"], check=False)
    assert done.returncode == 7


def test_without_its_data_the_command_still_runs(image: Path) -> None:
    shutil.rmtree(image / "cuda")
    assert start(image, OLD, compat=True) == ("unset", "")
