"""Run one training job in local mode, with version 2 of SageMaker's SDK and its Python, and without an AWS account.

python local_v2.py '{"image": ..., "script": ..., "code": ..., "folder": ..., "hosts": 1, "distribution": {}, ...}'
"""

import json
import sys

import boto3
from sagemaker.estimator import Estimator
from sagemaker.local import LocalSession
from sagemaker.pytorch import PyTorch

job = json.loads(sys.argv[1])
nobody = boto3.Session(aws_access_key_id="nobody", aws_secret_access_key="nobody", region_name="us-east-1")
session = LocalSession(nobody)
session.config = {"local": {"local_code": True, "container_root": job["folder"]}}
# The generic class has no argument `distribution`; the one of PyTorch has.
kind, distribution = (PyTorch, {"distribution": job["distribution"]}) if job["distribution"] else (Estimator, {})
kind(
    image_uri=job["image"],
    role="arn:aws:iam::000000000000:role/nobody",
    instance_type="local",
    instance_count=job["hosts"],
    entry_point=job["script"],
    source_dir=job["code"],
    output_path=f"file://{job['folder']}",
    hyperparameters=job["hyperparameters"],
    environment=job["environment"],
    sagemaker_session=session,
    **distribution,
).fit()
