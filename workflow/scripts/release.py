"""Rule `release`: publishes one bundle, or refuses it and says why."""

from typing import TYPE_CHECKING

from hallmark import jobs

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

jobs.publish(snakemake)
