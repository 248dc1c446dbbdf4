"""Every rule that writes one store entry: the body is the function of `hallmark.bodies` with the rule's name."""

from typing import TYPE_CHECKING

from hallmark import bodies, jobs

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

jobs.write_entry(snakemake, bodies.BODIES[snakemake.rule])
