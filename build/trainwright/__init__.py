"""trainwright: build training images for AWS accelerators whose contents match what they declare."""

import atexit
import gc

__version__ = "0.1.0"

# Because a command runs briefly and its objects live until it exits, garbage collection rarely runs and is skipped at
# exit: both would take a fourth of the time of `plan`.
gc.set_threshold(100_000)
atexit.register(gc.freeze)
