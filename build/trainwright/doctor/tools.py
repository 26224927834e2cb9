"""Check that the programs that a build calls are installed."""

import os
import shutil
import sys
from pathlib import Path

from trainwright.doctor.context import Context, Finding

SYSTEM = ("git",)  # from PATH
OURS = ("syft", "uv")  # installed with trainwright, beside its Python


def check(_: Context) -> Finding:
    system = [name for name in SYSTEM if not shutil.which(name)]
    ours = [name for name in OURS if not os.access(Path(sys.executable).with_name(name), os.X_OK)]
    if not system and not ours:
        return Finding(check="tools", state="ok", found=", ".join(SYSTEM + OURS))
    fixes = [f"install {', '.join(system)}"] if system else []
    fixes += [f"{sys.executable} -m pip install --editable ."] if ours else []
    return Finding(check="tools", state="failed", found=f"missing: {', '.join(system + ours)}", fix=" && ".join(fixes))
