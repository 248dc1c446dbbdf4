"""Programs that bundles carry, each copied there as run.py. They stand alone: nothing here imports another module of ours."""
