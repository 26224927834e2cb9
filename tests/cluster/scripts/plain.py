"""One process on each host, which finds its peers by name."""

import os
import socket
import sys

assert "RANK" not in os.environ or "TORCHELASTIC_RUN_ID" not in os.environ
assert not any(name.startswith("OMPI_COMM_WORLD") for name in os.environ)
sys.stdout.write(f"checked: alone on {socket.gethostname()}\n")
