"""Words in, exit code out. Typer lives here and nowhere else."""
