"""Load the declarations: the matrix, its models and providers, compatible versions, instances, proof records."""
