"""What Slurm and Kubernetes need of every job, a gate's as well as a training job's. Pure: text and objects."""
