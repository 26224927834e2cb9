"""trainwright: training images for AWS accelerators that are what they say they are."""

import atexit
import gc

__version__ = "0.1.0"

# A command reads, answers and ends, and what it made lives until then. To look for garbage in it all the time, and to
# take it apart at the end, is a fourth of what `plan` takes.
gc.set_threshold(100_000)
atexit.register(gc.freeze)
