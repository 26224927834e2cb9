"""Write the parts that Slurm and Kubernetes need for gates and training jobs alike. Pure: text and objects."""
