"""GGUF files for tests, written with the `gguf` package. Says nothing of what is in them."""

import gguf
import numpy as np
from gguf.quants import quantize

TYPES = gguf.GGMLQuantizationType


def write(path, stored, keys, kind=TYPES.Q8_0):
    """A GGUF file; matrices as `kind`, arrays that are bytes already as they are."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in keys.items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add.get(type(value), writer.add_array)(key, value)
    for name, values in stored.items():
        if values.dtype == np.uint8:
            writer.add_tensor(name, values, raw_dtype=kind)
        elif values.ndim > 1 and kind != TYPES.F32:
            writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
