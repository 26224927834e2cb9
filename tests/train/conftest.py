"""A SageMaker job without SageMaker: a generated /opt/ml, a fresh container, `train`, and what it left behind."""

import io
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainwright.docker import engine
from trainwright.jobs import contract

HERE = Path(__file__).parent
HOST, INSTANCE = "algo-1", "ml.c5.xlarge"
LIMIT_SECONDS = 180


@dataclass
class Outcome:
    code: int
    logs: str
    files: dict[str, bytes]  # of /opt/ml after the run, and of `keep`

    @property
    def failure(self) -> str:
        return self.files.get("/opt/ml/output/failure", b"").decode()


def unpacked(archive: bytes, above: str) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        return {f"{above}/{entry.name}": found.extractfile(entry).read() for entry in found if entry.isreg()}  # type: ignore[union-attr]


@pytest.fixture(scope="session")
def run(image: str, pack: Callable[[Mapping[str, bytes]], bytes]) -> Callable[..., Outcome]:
    """Run a command of the image in a container of its own, with these files; `keep` names folders to bring back."""

    def run(
        command: list[str] | None,
        files: Mapping[str, bytes],
        keep: tuple[str, ...] = ("/opt/ml",),
        environment: Mapping[str, str] | None = None,
    ) -> Outcome:
        client, labels = engine.client(), {"io.trainwright.test": "job"}
        started = client.containers.create(
            image, command=command, hostname=HOST, labels=labels, environment=dict(environment or {})
        )
        try:
            started.put_archive("/", pack(files))
            started.start()
            code = started.wait(timeout=LIMIT_SECONDS)["StatusCode"]
            left: dict[str, bytes] = {}
            for folder in keep:
                left |= unpacked(b"".join(started.get_archive(folder)[0]), str(Path(folder).parent).rstrip("/"))
            return Outcome(code, started.logs().decode(errors="replace"), left)
        finally:
            started.remove(force=True, v=True)

    return run


@pytest.fixture(scope="session")
def job(run: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """A training job: a script with its source folder, hyperparameters, and channels as file name to content."""

    def job(
        script: str,
        code: Mapping[str, str | bytes],
        hyperparameters: Mapping[str, Any] | None = None,
        channels: Mapping[str, Mapping[str, bytes]] | None = None,
        keep: tuple[str, ...] = ("/opt/ml",),
        environment: Mapping[str, str] | None = None,
    ) -> Outcome:
        channels = channels or {}
        toolkit = {"sagemaker_program": script, "sagemaker_submit_directory": "/opt/ml/code"}
        settings = {**toolkit, **(hyperparameters or {})}
        files = contract.config([HOST], HOST, settings, list(channels), INSTANCE)
        for name, content in code.items():
            files[f"/opt/ml/code/{name}"] = content.encode() if isinstance(content, str) else content
        files |= {f"/opt/ml/input/data/{c}/{n}": content for c, data in channels.items() for n, content in data.items()}
        return run(["train"], files, keep, environment)

    return job


@pytest.fixture(scope="session")
def digits() -> dict[str, dict[str, bytes]]:
    """scikit-learn's handwritten digits as two channels, one in five held back."""
    import numpy
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    held_back = numpy.arange(len(labels)) % 5 == 0

    def packed(chosen: Any) -> bytes:
        file = io.BytesIO()
        numpy.savez(file, images=images[chosen], labels=labels[chosen])
        return file.getvalue()

    return {"training": {"digits-train.npz": packed(~held_back)}, "test": {"digits-test.npz": packed(held_back)}}


# One script for each framework, called as its component.
SCRIPTS = {path.stem.removeprefix("digits_"): path for path in sorted(HERE.glob("digits_*.py"))}


@pytest.fixture(
    scope="session",
    params=[pytest.param(path, marks=pytest.mark.component(name), id=name) for name, path in SCRIPTS.items()],
)
def digits_script(request: pytest.FixtureRequest) -> dict[str, str]:
    """The same task in the words of the image's own framework; where there is none, there is no such test."""
    return {"digits.py": request.param.read_text()}
