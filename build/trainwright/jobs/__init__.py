"""Training jobs: estimate communication, run on this machine, emit for a scheduler, launch on SageMaker, follow."""
