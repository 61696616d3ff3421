"""A real Slurm on hosts of this machine."""
