#!/usr/bin/env python3
"""The work of configurations.hpp done by PyTorch, as an opponent of `compare` and bench_device, which start this script and
tell it what to do, a line at a time:

  torch_peer.py CONFIG IDS THREADS [DEVICE]   says who it is
  prepare WORK VARIANT                        "ok", or why not
  run N                                       milliseconds of each of N steps; on a device, of all N together
  memory                                      megabytes (10^6 bytes) that were resident at most

VARIANT: eager (dense gradients, the optimisers' plain loops), foreach, fused (optimisers of those names), compile
(torch.compile of the layer, with the fused optimiser), sparse (sparse gradients), chunked (the loss of a transformer by
chunks of rows, with the fused optimiser).
"""
import os
import sys
import time

import numpy
import torch

# Answers go to what was stdout; whatever else prints (compilers do) goes to stderr.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

CONFIGURATIONS = {  # vocabulary, limit, width, batch, length
    "small": (1000, 128, 64, 32, 128),
    "gpt2": (50257, 1024, 768, 4, 1024),
    "bert": (30522, 512, 768, 16, 128),
    "bigvocab": (1000000, 512, 128, 32, 128),
}
P = 0.1


class IdStream:
    """IdStream of configurations.hpp: the same ids."""

    def __init__(self, rows, kind, seed):
        self.rows, self.next = rows, seed << 40
        self.below = None if kind in ("uniform", "no") else numpy.cumsum(1.0 / numpy.arange(1, rows + 1, dtype=numpy.float64))

    def batch(self, count):
        x = numpy.arange(self.next + 1, self.next + 1 + count, dtype=numpy.uint64)
        self.next += count
        x *= numpy.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        x ^= x >> numpy.uint64(31)
        unit = (x >> numpy.uint64(11)).astype(numpy.float64) * 2.0**-53
        if self.below is None:
            return (unit * self.rows).astype(numpy.int64)
        places = numpy.searchsorted(self.below, unit * self.below[-1], side="right")
        return numpy.minimum(places, self.rows - 1).astype(numpy.int64)


class Layer(torch.nn.Module):
    def __init__(self, rows, limit, width):
        super().__init__()
        self.tokens = torch.nn.Embedding(rows, width)
        self.positions = torch.nn.Embedding(limit, width)
        self.dropout = torch.nn.Dropout(P)

    def forward(self, ids, places):
        return self.dropout(self.tokens(ids) + self.positions(places))


class Stack:
    """The embedding stack."""

    def __init__(self, configuration, device):
        rows, limit, width, batch, length = configuration
        self.layer = Layer(rows, limit, width).to(device)
        self.linear = torch.nn.Linear(width, width).to(device)
        self.places = torch.arange(length, device=device)
        self.upstream = torch.randn(batch, length, width, device=device)

    def prepare(self, work, variant):
        self.work, self.optimizer, self.forward = work, None, self.layer
        for table in (self.layer.tokens, self.layer.positions):
            table.sparse = variant == "sparse"
            table.weight.grad = None
        self.layer.train(work != "eval_forward")
        if variant == "compile":
            torch._dynamo.reset()
            if work == "train_forward_linear":
                both = torch.nn.Sequential(self.linear)
                self.forward = torch.compile(lambda ids, places: both(self.layer(ids, places)))
            else:
                self.forward = torch.compile(self.layer)
        elif work == "train_forward_linear":
            self.forward = lambda ids, places: self.linear(self.layer(ids, places))
        how = {"eager": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True},
               "compile": {"fused": True}, "sparse": {"foreach": False}}[variant]
        tables = [self.layer.tokens.weight, self.layer.positions.weight]
        if work == "sgd":
            self.optimizer = torch.optim.SGD(tables, lr=1e-3, **how)
        elif work == "adamw":
            self.optimizer = torch.optim.AdamW(tables, lr=1e-4, **how)
        elif work == "lazy_adam":
            self.optimizer = torch.optim.SparseAdam(tables, lr=1e-4)

    def run(self, ids):
        if self.work == "eval_forward":
            with torch.no_grad():
                self.forward(ids, self.places)
            return
        out = self.forward(ids, self.places)
        if self.work in ("train_forward", "train_forward_linear"):
            return
        out.backward(self.upstream)
        if self.optimizer is not None:
            self.optimizer.step()
        self.layer.tokens.weight.grad = None
        self.layer.positions.weight.grad = None


def make_model(name, device):
    """What does the work of a configuration, and the rows, batch and length of its ids."""
    if name in CONFIGURATIONS:
        rows, _, _, batch, length = CONFIGURATIONS[name]
        return Stack(CONFIGURATIONS[name], device), rows, batch, length
    import torch_transformer  # beside this file

    configuration = torch_transformer.CONFIGURATIONS[name]
    rows, _, _, batch, length = configuration[:5]
    kind = torch_transformer.Transformer if rows else torch_transformer.Block
    return kind(configuration, device), rows, batch, length + 1  # it learns to tell the next id


class Peer:
    def __init__(self, name, kind, device):
        self.model, rows, self.batch, self.length = make_model(name, device)
        self.stream = IdStream(rows, kind, 1)
        self.device = device
        self.batches = [self.ids() for _ in range(32)] if device != "cpu" else []

    def prepare(self, work, variant):
        self.model.prepare(work, variant)
        self.step()  # compiles; finds out what is not supported
        return "ok"

    def ids(self):
        ids = torch.from_numpy(self.stream.batch(self.batch * self.length)).view(self.batch, self.length)
        return ids.to(self.device)

    def step(self):
        ids = self.ids()
        start = time.perf_counter()
        self.model.run(ids)
        return time.perf_counter() - start

    def steps(self, count):
        """Seconds of each of `count` steps; a device's are queued, so that all of them have the same share."""
        if self.device == "cpu":
            return [self.step() for _ in range(count)]
        torch.cuda.synchronize()
        start = time.perf_counter()
        for i in range(count):
            self.model.run(self.batches[i % len(self.batches)])
        torch.cuda.synchronize()
        return [(time.perf_counter() - start) / count]


def peak_memory_mb():
    with open("/proc/self/status") as status:
        return next(1.024e-3 * int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


def answer(text):
    print(text, file=ANSWERS, flush=True)


def main():
    name, kind, threads = sys.argv[1:4]
    torch.set_num_threads(int(threads))
    peer = Peer(name, kind, sys.argv[4] if len(sys.argv) > 4 else "cpu")
    answer("PyTorch " + torch.__version__)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "prepare":
            try:
                answer(peer.prepare(*words[1:]))
            except Exception as error:  # not supported by this version, or no compiler
                answer(f"{type(error).__name__}: {error}".splitlines()[0])
        elif words[0] == "memory":
            answer(f"{peak_memory_mb():.6g}")
        else:
            answer(" ".join(f"{1e3 * seconds:.6g}" for seconds in peer.steps(int(words[1]))))


if __name__ == "__main__":
    main()
