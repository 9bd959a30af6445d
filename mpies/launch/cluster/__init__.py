"""A run or a sweep as a job of Slurm or Kubernetes."""
