"""interop.py FOLDER: checks what Wengert wrote there against Python's own readers, and writes what Wengert will check."""

import pathlib
import sys

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

folder = pathlib.Path(sys.argv[1])
grid = np.arange(6).reshape(2, 3)


def expect(condition, what):
    if not condition:
        sys.exit(f"interop: {what}")


def expect_equal(actual, wanted, what):
    expect(actual.dtype == wanted.dtype and actual.shape == wanted.shape, f"{what} is {actual.dtype} {actual.shape}")
    expect((actual == wanted).all(), f"{what} is {actual}")


ours = load_file(folder / "ours.safetensors")
expect(sorted(ours) == ["double", "float", "ids", "int", "nothing", "näm\"e", "scalar"], f"the names are {sorted(ours)}")
expect_equal(ours["float"], grid.astype("f4") / 4, "float")
expect_equal(ours["double"], np.array([0.1, -1e300]), "double")
expect_equal(ours["ids"], np.array([2**62, -1]), "ids")
expect_equal(ours["int"], np.array([-(2**31)], "i4"), "int")
expect_equal(ours["nothing"], np.zeros((0, 4), "f4"), "nothing")
expect_equal(ours["scalar"], np.array(2.5, "f4"), "scalar")
with safe_open(folder / "ours.safetensors", "np") as file:
    expect(file.metadata() == {"note": "zwei\nZeilen", "tied": "float"}, f"the metadata are {file.metadata()}")
with safe_open(folder / "half.safetensors", "np") as file:
    expect(file.get_slice("float").get_dtype() == "F16", "no F16")
    expect_equal(file.get_tensor("float"), grid.astype("f2") / 4, "half")
with safe_open(folder / "run.ckpt", "np") as file:
    expect(set(file.keys()) == {"model.w", "optimizer.w.step", "optimizer.w.momentum_buffer"}, "keys of the checkpoint")
    expect(file.metadata()["wengert.step"] == "3", "the step of the checkpoint")
    expect_equal(file.get_tensor("optimizer.w.step"), np.array(3), "step")
expect_equal(np.load(folder / "ours.npy"), grid.astype("f8") / 4, "npy")

save_file({"float": grid.astype("f4") / 4, "half": grid.astype("f2"), "ids": np.array([2**62, -1])},
          folder / "theirs.safetensors", {"note": "zwei\nZeilen"})
np.save(folder / "theirs.npy", np.asfortranarray(grid.astype(">f8")))
