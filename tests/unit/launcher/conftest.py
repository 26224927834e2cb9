"""The launcher's modules lie flat in one folder, as python finds them inside an image."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "dockerfiles/rootfs/common/opt/trainwright/launcher"))
