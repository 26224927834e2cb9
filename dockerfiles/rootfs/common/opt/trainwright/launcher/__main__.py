"""Run the launcher: `python -IB /opt/trainwright/launcher`. -I leaves this folder off sys.path, so it is added here."""

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
os._exit(code)  # a thread that still waits for another host must not delay the end of the job
