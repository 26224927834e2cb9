"""Test that a new scheduler is a new file, without a change to any other file of the package."""

import shutil
import subprocess
import sys
from pathlib import Path

from trainwright.jobs import schedulers

ROOT = Path(__file__).parents[3]
FLUX = """
STARTS = ("torchrun",)
KUBERNETES, HYPERPOD = False, False


def text(job):
    return f"#flux: -N {job.nodes}\\n{job.script.path}\\n"


def commands(job, file):
    return [f"flux batch {file}"]
"""


def test_each_has_what_a_scheduler_needs() -> None:
    assert {"slurm", "mpijob", "pytorchjob", "hyperpod-slurm", "hyperpod-eks"} <= set(schedulers.NAMES)
    for name in schedulers.NAMES:
        found = schedulers.named(name)
        assert found.STARTS
        assert callable(found.text)
        assert callable(found.commands)
        assert isinstance(found.KUBERNETES, bool)
        assert isinstance(found.HYPERPOD, bool)


def test_a_new_file_is_a_new_scheduler(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "build/trainwright", tmp_path / "trainwright")
    (tmp_path / "trainwright/jobs/schedulers/flux.py").write_text(FLUX)
    (tmp_path / "train.py").touch()
    image = f"registry.example.com/trainwright/pytorch@sha256:{'a' * 64}"
    words = ["emit", image, str(tmp_path / "train.py"), "--on", "flux", "--nodes", "2", "--instance", "p5.48xlarge"]
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from trainwright import cli; cli.main()"
    done = subprocess.run([sys.executable, "-c", program, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "#flux: -N 2\ntrain.py\n"
    assert "flux batch FILE" in done.stderr
