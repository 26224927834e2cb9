"""Do an all-reduce over MPI; record the hosts, from their own files instead of variables that mpirun passes on."""

import json
import os
from pathlib import Path

import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
total = numpy.empty(1000)
world.Allreduce(numpy.full(1000, world.rank + 1.0), total)
hosts = world.gather(json.loads(Path("/opt/ml/input/config/resourceconfig.json").read_text())["current_host"])
if world.rank == 0:
    result = {"size": world.size, "hosts": sorted(set(hosts)), "sum": numpy.unique(total).tolist()}
    Path(os.environ["SM_MODEL_DIR"], "result.json").write_text(json.dumps(result))
