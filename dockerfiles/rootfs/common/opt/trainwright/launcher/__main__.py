"""`python -IB /opt/trainwright/launcher`: isolated, so this folder has to be put on Python's path by hand."""

import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import launch  # noqa: E402
import ranks  # noqa: E402

settings = json.loads((HERE / "settings.json").read_text())
code = ranks.main(sys.argv[1:], settings) if sys.argv[1:2] == ["--rank"] else launch.main(sys.argv[1:], settings)
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)  # no thread that still waits for somebody holds up the end of the job
