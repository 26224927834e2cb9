"""Run the phases of buildspec.yml in a clean clone of the last commit, in the order in which CodeBuild runs them."""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import buildspecs
import pytest

from trainwright.core.errors import BuildError
from trainwright.core.process import run

ROOT = Path(__file__).parents[2]
NOT_HANDED_ON = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "ONLY", "FRAMEWORK", "VIRTUAL_ENV", "PYTHONPATH")
pytestmark = [pytest.mark.engine, pytest.mark.registry, pytest.mark.slow]


def test_its_phases_end_with_an_image_that_is_handed_on(registry: str) -> None:
    with TemporaryDirectory(prefix="trainwright-buildspec-", ignore_cleanup_errors=True) as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        spec = buildspecs.parse((clone / "buildspec.yml").read_text())
        script = [*spec.commands, *(f"printenv {name}" for name in spec.env.exported_variables)]
        environment = dict.fromkeys(NOT_HANDED_ON) | spec.env.variables | {"REGISTRY": f"{registry}/buildspec"}
        said = run(["bash", "-e", "-c", "\n".join(script)], cwd=clone, env=environment, error=BuildError)
        exported = dict(zip(spec.env.exported_variables, said.splitlines()[-4:], strict=True))
        assert exported["IMAGE_URI"].endswith(f"@{exported['IMAGE_DIGEST']}")
        assert exported["IMAGE_URI"].startswith(f"{registry}/buildspec/")
        assert spec.artifacts
        for path in [*spec.artifacts.files, *(path for report in spec.reports.values() for path in report.files)]:
            assert list(clone.glob(path)), path
