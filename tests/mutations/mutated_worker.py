"""A worker whose engine has a seeded defect: the real worker, with what it opens spoiled. Judges nothing.

    python -m tests.mutations.mutated_worker NAME request.json response.json

Runs in a toolchain, with the checkout and its `workflow/scripts` on Python's path.
"""

import sys
from pathlib import Path

from benchmarks.slowed_engine import run_worker
from tests.mutations import behaviour

if __name__ == "__main__":
    defect = next(mutation for mutation in behaviour.MUTATIONS if mutation.name == sys.argv[1])
    run_worker(defect.apply, Path(sys.argv[2]), Path(sys.argv[3]))
