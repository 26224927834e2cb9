"""Run one training job in local mode, with version 3 of SageMaker's SDK and its Python, and without an AWS account.

python local_v3.py '{"image": ..., "script": ..., "code": ..., "folder": ..., "hosts": 1, "distribution": {}, ...}'
"""

import json
import sys

from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, SourceCode
from sagemaker.train.distributed import MPI, Torchrun
from sagemaker.train.model_trainer import Mode

job = json.loads(sys.argv[1])
kinds = {"torchrun": Torchrun, "mpi": MPI}
distributed = [kinds[name](**options) for name, options in job["distribution"].items()]
ModelTrainer(
    training_image=job["image"],
    training_mode=Mode.LOCAL_CONTAINER,
    source_code=SourceCode(source_dir=job["code"], entry_script=job["script"]),
    compute=Compute(instance_type="local_cpu", instance_count=job["hosts"]),
    distributed=distributed[0] if distributed else None,
    hyperparameters=job["hyperparameters"],
    environment=job["environment"],
    local_container_root=job["folder"],
).train()
