"""Two hosts with torchrun, by CreateTrainingJob alone; the job's secret comes as a channel, so that no API shows it.

openssl rand -hex 32 | aws s3 cp - s3://BUCKET/jobs/train/secret/secret --sse aws:kms
"""

import json
import sys
import time

import boto3

image, role, bucket = sys.argv[1:]
name = f"train-{time.strftime('%Y%m%d-%H%M%S')}"


def channel(label: str, prefix: str) -> dict[str, object]:
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/{prefix}", "S3DataDistributionType": "FullyReplicated"}
    return {"ChannelName": label, "InputMode": "File", "DataSource": {"S3DataSource": source}}


hyperparameters = {
    "sagemaker_program": "checkpoint.py",
    "sagemaker_submit_directory": f"s3://{bucket}/code/sourcedir.tar.gz",
    "sagemaker_torch_distributed_enabled": True,
    "sagemaker_mpi_num_of_processes_per_host": 8,  # of torchrun, too; without it: the GPUs of the host
    "steps": 300,
}
boto3.client("sagemaker").create_training_job(
    TrainingJobName=name,
    RoleArn=role,
    AlgorithmSpecification={"TrainingImage": image, "TrainingInputMode": "File"},
    HyperParameters={key: json.dumps(value) for key, value in hyperparameters.items()},
    InputDataConfig=[channel("secret", "jobs/train/secret/")],
    Environment={"TRAINWRIGHT_JOB_SECRET_FILE": "/opt/ml/input/data/secret/secret"},
    OutputDataConfig={"S3OutputPath": f"s3://{bucket}/output"},
    CheckpointConfig={"S3Uri": f"s3://{bucket}/checkpoints/{name}"},
    ResourceConfig={"InstanceType": "ml.p5.48xlarge", "InstanceCount": 2, "VolumeSizeInGB": 500},
    EnableManagedSpotTraining=True,
    EnableNetworkIsolation=False,
    StoppingCondition={"MaxRuntimeInSeconds": 86400, "MaxWaitTimeInSeconds": 172800},
)
print(name)
