"""C and C++ with Python's headers, for torch.compile, Triton, and extensions in a job's requirements."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("compiler")
EXTENSION = """
#include <Python.h>
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "answer", NULL, -1, NULL, NULL, NULL, NULL, NULL};
extern "C" PyMODINIT_FUNC PyInit_answer() {
    auto module = PyModule_Create(&definition);
    PyModule_AddIntConstant(module, "value", 42);
    return module;
}
"""


def test_python_extension(host: Any) -> None:
    script = f"""
        set -e; cd $(mktemp -d) && cat > answer.cpp <<'END'
{EXTENSION}
END
        include=$(python -c 'import sysconfig; print(sysconfig.get_path("include"))')
        g++ -Wall -shared -fPIC -fopenmp -I "$include" answer.cpp -o answer.so
        python -c 'import answer; print(answer.value)'
    """
    assert host.check_output(script).strip() == "42"
