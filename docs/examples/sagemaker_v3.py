"""Two hosts with torchrun, with version 3 of SageMaker's SDK, whose own drivers start the script.

openssl rand -hex 32 | aws s3 cp - s3://BUCKET/jobs/train/secret/secret --sse aws:kms
python sagemaker_v3.py IMAGE ROLE BUCKET
"""

import sys

from sagemaker.core.training.configs import CheckpointConfig, Compute, InputData, SourceCode, StoppingCondition
from sagemaker.train.distributed import Torchrun
from sagemaker.train.model_trainer import ModelTrainer

image, role, bucket = sys.argv[1:]
trainer = ModelTrainer(
    training_image=image,
    role=role,
    source_code=SourceCode(source_dir=".", entry_script="checkpoint.py"),
    compute=Compute(instance_type="ml.p5.48xlarge", instance_count=2, enable_managed_spot_training=True),
    distributed=Torchrun(),  # MPI(process_count_per_node=8)
    hyperparameters={"steps": 300},
    environment={"TRAINWRIGHT_JOB_SECRET_FILE": "/opt/ml/input/data/secret/secret"},
    stopping_condition=StoppingCondition(max_runtime_in_seconds=86400, max_wait_time_in_seconds=172800),
    checkpoint_config=CheckpointConfig(s3_uri=f"s3://{bucket}/checkpoints/train"),
)
secret = InputData(channel_name="secret", data_source=f"s3://{bucket}/jobs/train/secret/")
trainer.train(input_data_config=[secret])
