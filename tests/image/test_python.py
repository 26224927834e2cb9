"""The virtual environment: whole, alone, and what a job imports is there."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("python")
MODULES = {  # beside those of frameworks, whose own tests import them and take a warning for a failure
    "jax": "jax, jaxlib",
    "mpi4py": "mpi4py.MPI",
    "sagemaker-training": "boto3, scipy, paramiko, sagemaker_training.trainer, gethostname",
}


def test_virtual_environment(host: Any) -> None:
    printed = host.check_output("python -c 'import sys; print(sys.prefix, sys.base_prefix, sys.flags.no_site)'")
    assert printed.split() == ["/opt/venv", "/usr", "0"]


def test_python3_of_scripts_is_the_same(host: Any) -> None:
    """SDK v3 calls python3, our own scripts python."""
    assert host.check_output("python3 -c 'import sys; print(sys.prefix)'") == "/opt/venv"


@pytest.mark.parametrize(
    "modules", [pytest.param(modules, marks=pytest.mark.component(name)) for name, modules in MODULES.items()]
)
def test_import(host: Any, modules: str) -> None:
    result = host.run(f"python -c 'import {modules}'")
    assert result.rc == 0, result.stderr


def test_bytecode_is_there(host: Any, declared: Any) -> None:
    """Compiled in the build: a job does not spend its first seconds on it."""
    site = f"/opt/venv/lib/python{declared.variant.python}/site-packages"
    assert host.check_output(f"find {site}/pip -name '*.pyc' | wc -l") != "0"
