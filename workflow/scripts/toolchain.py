"""Rule `toolchain`: makes one locked environment in the cache folder."""

from typing import TYPE_CHECKING

from hallmark import jobs

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

jobs.make_toolchain(snakemake)
