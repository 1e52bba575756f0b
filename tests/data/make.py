"""Writes the files beside this script with Python's own packages: pip install numpy safetensors ml_dtypes torch; python make.py"""

import pathlib

import ml_dtypes
import numpy as np
import torch
from numpy.lib import format as npy
from safetensors.numpy import save_file
from safetensors.torch import save_model

folder = pathlib.Path(__file__).parent


def bits16(dtype, *values):
    return np.array(values, "<u2").view(dtype)


tensors = {
    "f32": np.array([[1, -2.5, 3e-40], [np.inf, -0.0, 6]], "<f4"),
    "f64": np.array([0.1, -1e300, 5e-324]),
    "i32": np.array(-7, "<i4"),
    "i64": np.array([2**62, -1]),
    "empty": np.zeros((0, 4), "<i8"),
    "f16": bits16("<f2", 0x3C00, 0x7BFF, 0x0001, 0x8000, 0xFC00, 0x3555),
    "bf16": bits16(ml_dtypes.bfloat16, 0x3F81, 0x7F80, 0x0001, 0xC2F7).reshape(2, 2),
    'näm"e\n': np.array([42], "<f4"),
}
metadata = {"format": "np", "Grüße": "an\nalle"}
save_file(tensors, folder / "python.safetensors", metadata)
# Types that no Tensor can hold beside one that can.
save_file({"bool": np.array([False, True]), "f32": tensors["f32"], "u8": np.array([1, 2, 255], "u1")},
          folder / "python_bytes.safetensors")

c = np.arange(1, 7).reshape(2, 3)
cube = np.arange(24).reshape(2, 3, 4)
arrays = {
    "c_f4": c.astype("<f4"),
    "fortran_f4": np.asfortranarray(c.astype("<f4")),
    "fortran_cube_i8": np.asfortranarray(cube.astype("<i8")),
    "big_f4": c.astype(">f4"),
    "big_fortran_f8": np.asfortranarray(c.astype(">f8")),
    "big_i8": (c - 4).astype(">i8"),
    "bool": np.array([True, False, True]),
    "f2": np.array([1, -65504, 6e-8, np.inf], "<f2"),
    "i1": np.array([-128, 127], "i1"),
    "u1": np.array([0, 255], "u1"),
    "i2": np.array([-32768, 32767], "<i2"),
    "big_u2": np.array([1, 65535], ">u2"),
    "u4": np.array([2**32 - 1], "<u4"),
    "u8": np.array([2**63 - 1], "<u8"),
    "i4": np.array([-(2**31), 2**31 - 1], "<i4"),
    "scalar": np.array(2.5),
    "vector": np.arange(3.0),
    "empty": np.zeros((0, 4), "<f4"),
    "too_large": np.array([1, 2**63], "<u8"),
    "structured": np.zeros(2, [("a", "<f4"), ("b", "<i4")]),
    "text": np.array(["ab", "cdef"]),
    "complex": np.zeros(2, "<c8"),
}
for name, array in arrays.items():
    np.save(folder / f"{name}.npy", array)
np.save(folder / "object.npy", np.array([1, "a", None], object), allow_pickle=True)
for version in [(1, 0), (2, 0), (3, 0)]:
    with open(folder / f"version{version[0]}.npy", "wb") as file:
        npy.write_array(file, c.astype("<f4"), version)


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(3, 2)
        self.head = torch.nn.Linear(2, 3, bias=False)
        self.head.weight = self.embed.weight


tied = Tied()
with torch.no_grad():
    tied.embed.weight.copy_(torch.arange(6.0).reshape(3, 2))
save_model(tied, folder / "torch_tied.safetensors")
