"""Jobs of several hosts in real containers: the fixture `cluster`, and the table of what ran where, how long."""

import io
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cluster import harness

ROOT = Path(__file__).parents[2]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("trainwright")
    group.addoption(
        "--rootfs",
        metavar="FOLDER",
        type=Path,
        help="dockerfiles/rootfs of a checkout: its files replace those of an older image in each container",
    )


def packed(folder: Path, site: str, parts: set[str]) -> io.BytesIO:
    """The files of rootfs at the places that the layers give them (dockerfiles/layers/*.j2)."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as into:

        def add(path: Path, place: str) -> None:
            entry = into.gettarinfo(str(path), place.lstrip("/"))
            with path.open("rb") as content:
                into.addfile(entry.replace(uid=0, gid=0, uname="root", gname="root", deep=False), content)

        for path in sorted(path for path in (folder / "common").rglob("*") if path.is_file()):
            if "__pycache__" not in path.parts:
                add(path, str(path.relative_to(folder / "common")))
        if "sagemaker" in parts:
            for path in sorted((folder / "sagemaker").iterdir()):
                if path.is_file():
                    add(path, f"{site}/{path.name}" if path.suffix == ".py" else f"/opt/trainwright/bin/{path.name}")
    return archive


@pytest.fixture(scope="session")
def rootfs(pytestconfig: pytest.Config, declared: Any) -> io.BytesIO | None:
    """What replaces files of the image: nothing, unless --rootfs says so."""
    folder = pytestconfig.getoption("--rootfs")
    if folder is None:
        return None
    if not (folder / "common").is_dir():
        raise pytest.UsageError(f"--rootfs {folder} holds no folder common: say dockerfiles/rootfs of a checkout")
    variant = declared.variant
    site = f"/opt/venv/lib/python{variant.python}/site-packages"
    return packed(folder, site, {variant.target})


@pytest.fixture
def cluster(
    image: str, rootfs: io.BytesIO | None, tmp_path: Path, record_property: Callable[[str, object], None]
) -> Iterator[Callable[..., harness.Cluster]]:
    """Start a job: cluster(2, SCRIPT, distribution="mpi"). All of it is gone after the test, whatever happens."""
    began = time.monotonic()
    with ExitStack() as stack:

        def start(count: int, script: str | Path, **options: Any) -> harness.Cluster:
            folder = tmp_path / f"job-{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            record_property("path", options.get("platform", "sagemaker"))
            record_property("distribution", options.get("distribution", "torchrun"))
            record_property("hosts", count)
            record_property("processes", options.get("processes", 1))
            return stack.enter_context(harness.cluster(image, folder, count, script, rootfs=rootfs, **options))

        yield start
        record_property("seconds", round(time.monotonic() - began, 1))
        record_property("rootfs", "of the checkout" if rootfs else "of the image")
