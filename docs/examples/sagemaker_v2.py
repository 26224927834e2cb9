"""Two hosts with torchrun, with version 2 of SageMaker's SDK.

openssl rand -hex 32 | aws s3 cp - s3://BUCKET/jobs/train/secret/secret --sse aws:kms
python sagemaker_v2.py IMAGE ROLE BUCKET
"""

import sys

from sagemaker.pytorch import PyTorch

image, role, bucket = sys.argv[1:]
estimator = PyTorch(
    image_uri=image,
    role=role,
    entry_point="checkpoint.py",
    source_dir=".",
    instance_type="ml.p5.48xlarge",
    instance_count=2,
    distribution={"torch_distributed": {"enabled": True}},  # {"mpi": {"enabled": True, "processes_per_host": 8}}
    hyperparameters={"steps": 300},
    environment={"TRAINWRIGHT_JOB_SECRET_FILE": "/opt/ml/input/data/secret/secret"},
    checkpoint_s3_uri=f"s3://{bucket}/checkpoints/train",
    use_spot_instances=True,
    max_run=86400,
    max_wait=172800,
)
estimator.fit({"secret": f"s3://{bucket}/jobs/train/secret/"})
