"""Programs that bundles carry, each copied there as run.py. They stand alone: none imports a module of ours."""
