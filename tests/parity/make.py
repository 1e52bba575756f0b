"""Writes data/*.safetensors, what PyTorch 2.15 computes: pip install torch numpy safetensors; python tests/parity/make.py

parity_test.cpp and parity_ops_test.cpp run the same cases. Everything is computed in float64 from values that are exact in float32.
A case NAME has tensors NAME/in0, NAME/in1, ... (integers are ids, labels or masks), NAME/out, and, where it has a derivative,
NAME/upstream and NAME/grad0, NAME/grad1, ... of the floating inputs; a layer also NAME/weight/KEY and NAME/weight_grad/KEY.
"""

import math
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

folder = pathlib.Path(__file__).parent / "data"
torch.manual_seed(1)
torch.set_num_threads(1)
cases = {}


def normal(*shape):
    return torch.randn(shape, dtype=torch.float32).double()


def positive(*shape):
    return (torch.rand(shape, dtype=torch.float32) * 1.5 + 0.5).double()


def ids(rows, *shape):
    return torch.randint(0, rows, shape)


def case(name, run, *inputs, module=None):
    assert name + "/out" not in cases, name
    inputs = [x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    out = run(*inputs)
    for i, x in enumerate(inputs):
        cases[f"{name}/in{i}"] = x.detach().clone()
    cases[f"{name}/out"] = out.detach().clone()
    if not out.is_floating_point():
        return
    upstream = normal(*out.shape)
    cases[f"{name}/upstream"] = upstream
    out.backward(upstream)
    for i, x in enumerate(inputs):
        if x.is_floating_point() and x.grad is not None:
            cases[f"{name}/grad{i}"] = x.grad
    if module is not None:
        for key, parameter in module.named_parameters():
            cases[f"{name}/weight/{key}"] = parameter.detach().clone()
            cases[f"{name}/weight_grad/{key}"] = parameter.grad.to_dense()


def write(name):
    save_file({k: v.contiguous().clone() for k, v in cases.items()}, folder / f"{name}.safetensors")
    cases.clear()


# --- Operations ---

one_operand = {
    "neg": (torch.neg, normal),
    "square": (torch.square, normal),
    "sqrt": (torch.sqrt, positive),
    "exp": (torch.exp, normal),
    "log": (torch.log, positive),
    "tanh": (torch.tanh, normal),
    "relu": (torch.relu, normal),
    "gelu": (F.gelu, lambda *shape: 3 * normal(*shape)),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), lambda *shape: 3 * normal(*shape)),
    "scalars": (lambda x: 2.5 - (1.5 / (x * 3.0 + 0.5) - 2.0) / 4.0, positive),
}
for name, (run, values) in one_operand.items():
    for shape in [(), (7,), (3, 17), (2, 0, 3), (129,)]:
        case(f"{name} {list(shape)}", run, values(*shape))

two_operands = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}
for name, run in two_operands.items():
    for a, b in [((), ()), ((17,), (17,)), ((2, 3, 4), (4,)), ((2, 3, 4), (3, 1)), ((2, 1, 3, 1), (4, 1, 5)), ((0, 4), (1, 4))]:
        case(f"{name} {list(a)} {list(b)}", run, normal(*a), positive(*b))

for condition, a, b in [((5,), (5,), (5,)), ((3, 1), (7,), (3, 7)), ((7,), (2, 3, 7), (3, 1))]:
    case(f"where {list(condition)} {list(a)} {list(b)}", lambda c, x, y: torch.where(c != 0, x, y),
         ids(2, *condition), normal(*a), normal(*b))

for name, run in {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "argmax": torch.argmax}.items():
    for shape in [(17,), (3, 7), (33, 3), (2, 3, 5)]:
        case(f"{name} {list(shape)}", run, normal(*shape))
        for axis in range(-1, len(shape) - 1):
            for keep in [False, True]:
                case(f"{name} {list(shape)} {axis} {int(keep)}", lambda x: run(x, dim=axis, keepdim=keep), normal(*shape))

case("reshape", lambda x: x.reshape(7, -1), normal(2, 3, 7))
case("transpose", lambda x: x.transpose(-1, 0), normal(2, 3, 7))
case("permute", lambda x: x.permute(2, 0, 1), normal(2, 3, 7))
case("slice", lambda x: x[:, 1:-1], normal(3, 7, 2))
case("concat", lambda a, b, c: torch.cat([a, b, c], dim=-1), normal(2, 3), normal(2, 1), normal(2, 5))
case("broadcast_to", lambda x: torch.broadcast_to(x, (2, 3, 4)), normal(3, 1))

for a, b in [((5, 33), (33, 2)), ((17,), (17,)), ((3,), (3, 7)), ((7, 3), (3,)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (3, 4, 2)),
             ((2, 0), (0, 3)), ((65, 70), (70, 35))]:
    case(f"matmul {list(a)} {list(b)}", torch.matmul, normal(*a), normal(*b))
for shape, out in [((3,), 2), ((4, 7), 3), ((2, 3, 17), 5), ((33, 40), 19)]:
    case(f"linear {list(shape)} {out}", F.linear, normal(*shape), normal(out, shape[-1]))
    case(f"linear {list(shape)} {out} bias", F.linear, normal(*shape), normal(out, shape[-1]), normal(out))

for name, run in {"softmax": torch.softmax, "log_softmax": torch.log_softmax}.items():
    for shape, axis in [((7,), 0), ((3, 17), -1), ((2, 3, 5), 1), ((2, 129), -1)]:
        case(f"{name} {list(shape)} {axis}", lambda x: run(x, dim=axis), 5 * normal(*shape))

for reduction in ["none", "sum", "mean"]:
    case(f"mse_loss {reduction}", lambda x, y: F.mse_loss(x, y, reduction=reduction), normal(3, 17), normal(3, 17))
    for ignore in [-100, 255, 1]:
        for smoothing in [0.0, 0.1, 1.0]:
            labels = ids(7, 11)
            labels[3] = labels[4] = ignore
            case(f"cross_entropy {reduction} {ignore} {smoothing}",
                 lambda x, y: F.cross_entropy(x, y, ignore_index=ignore, reduction=reduction, label_smoothing=smoothing),
                 3 * normal(11, 7), labels)

            case(f"linear_cross_entropy {reduction} {ignore} {smoothing}",
                 lambda x, w, y: F.cross_entropy(x @ w.T, y, ignore_index=ignore, reduction=reduction, label_smoothing=smoothing),
                 normal(11, 5), normal(7, 5), labels)

for padding in [None, 2]:
    case(f"embed_dropout {padding}", lambda w, p, i: F.embedding(i, w, padding_idx=padding) + p[2:5], normal(7, 5), normal(9, 5),
         ids(7, 4, 3))  # nothing is dropped: random numbers are nobody else's
    for rows, d, shape in [(5, 3, (7,)), (5, 17, (2, 3)), (11, 2, (2, 33))]:
        case(f"embedding {rows} {d} {list(shape)} {padding}", lambda w, i: F.embedding(i, w, padding_idx=padding),
             normal(rows, d), ids(rows, *shape))

for shape, over in [((3, 1), (1,)), ((2, 3, 17), (17,)), ((65, 7), (7,)), ((2, 129), (129,)), ((2, 3, 5), (3, 5))]:
    offset = 100.0 if shape[0] == 65 else 0.0
    case(f"layer_norm {list(shape)} {list(over)}", lambda x: F.layer_norm(x, over, eps=1e-3), normal(*shape) + offset)
    if over == (1,):
        continue  # its gradients are 0, but for PyTorch's rounding
    case(f"layer_norm {list(shape)} {list(over)} weight", lambda x, w, b: F.layer_norm(x, over, w, b), normal(*shape),
         normal(*over), normal(*over))

for batch, heads, tq, tk, d in [(2, 3, 5, 5, 7), (1, 2, 17, 17, 16), (2, 1, 3, 129, 4), (1, 1, 300, 300, 8)]:
    q, k, v = normal(batch, heads, tq, d), normal(batch, heads, tk, d), normal(batch, heads, tk, d)
    name = f"attention {batch} {heads} {tq} {tk} {d}"
    case(name, F.scaled_dot_product_attention, q, k, v)
    case(name + " scale", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3), q, k, v)
    keys = ids(3, batch, tk)
    keys[:, 0] = 1
    case(name + " mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=(m != 0)[:, None, None, :]),
         q, k, v, keys)
    case(name + " added", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m.detach()[:, None, None, :]),
         q, k, v, normal(batch, tk))
    if tq == tk:
        case(name + " causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v)
write("ops")

# --- Layers ---


def exact(module):
    """Weights that are exact in float32, none of them 0 or 1 throughout."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_((parameter.float() + 0.1 * torch.randn_like(parameter, dtype=torch.float32)).double())
    return module.double()


for name, width, heads, bias in [("6 2", 6, 2, True), ("16 4", 16, 4, True), ("7 1 no bias", 7, 1, False)]:
    attention = exact(torch.nn.MultiheadAttention(width, heads, bias=bias, batch_first=True))
    future = torch.triu(torch.ones(5, 5), 1).bool()
    padding = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 1, 0, 1]])

    def run(q, k, v, **masks):
        attention.zero_grad()
        return attention(q, k, v, need_weights=False, **masks)[0]

    x = normal(2, 5, width)
    case(f"self_attn {name}", lambda x: run(x, x, x), x, module=attention)
    case(f"self_attn {name} causal", lambda x: run(x, x, x, attn_mask=future), x, module=attention)
    case(f"self_attn {name} padding", lambda x, p: run(x, x, x, key_padding_mask=p != 0), x, padding, module=attention)
    case(f"self_attn {name} causal padding",
         lambda x, p: run(x, x, x, attn_mask=future, key_padding_mask=p != 0), x, padding, module=attention)
    case(f"self_attn {name} added", lambda x, m: run(x, x, x, key_padding_mask=m.detach()), x, normal(2, 5), module=attention)
    case(f"cross_attn {name}", run, normal(2, 3, width), normal(2, 5, width), normal(2, 5, width), module=attention)

for activation in ["relu", "gelu", "gelu_tanh"]:
    for norm_first in [False, True]:
        function = {"gelu_tanh": lambda x: F.gelu(x, approximate="tanh")}.get(activation, activation)
        block = exact(torch.nn.TransformerEncoderLayer(8, 2, 19, dropout=0.0, activation=function, norm_first=norm_first,
                                                       batch_first=True, layer_norm_eps=1e-4))
        future = torch.triu(torch.full((7, 7), -math.inf, dtype=torch.float64), 1)
        case(f"block {activation} {int(norm_first)}", lambda x: block(x, src_mask=future), normal(2, 7, 8), module=block)
        block = exact(torch.nn.TransformerEncoderLayer(8, 2, 19, dropout=0.0, activation=function, norm_first=norm_first,
                                                       batch_first=True, layer_norm_eps=1e-4, bias=False))
        padding = torch.tensor([[0, 0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 1, 1, 1]])
        case(f"block {activation} {int(norm_first)} no bias padding", lambda x, p: block(x, src_key_padding_mask=p != 0),
             normal(2, 7, 8), padding, module=block)


for name, module, x in [("linear 7 3", torch.nn.Linear(7, 3), normal(2, 5, 7)),
                        ("linear 7 3 no bias", torch.nn.Linear(7, 3, bias=False), normal(7)),
                        ("layer_norm 17", torch.nn.LayerNorm(17), normal(2, 3, 17)),
                        ("layer_norm 17 no bias", torch.nn.LayerNorm(17, eps=1e-3, bias=False), normal(5, 17)),
                        ("layer_norm 17 no affine", torch.nn.LayerNorm(17, elementwise_affine=False), normal(5, 17)),
                        ("embedding 11 5", torch.nn.Embedding(11, 5), ids(11, 2, 33)),
                        ("embedding 11 5 padding", torch.nn.Embedding(11, 5, padding_idx=3), ids(11, 2, 33))]:
    case(name, exact(module), x, module=module)


class BertEmbeddings(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = torch.nn.Embedding(11, 6, padding_idx=0)
        self.position_embeddings = torch.nn.Embedding(9, 6)
        self.token_type_embeddings = torch.nn.Embedding(2, 6)
        self.LayerNorm = torch.nn.LayerNorm(6, eps=1e-12)

    def forward(self, ids, types):
        places = torch.arange(ids.shape[-1])
        return self.LayerNorm(self.word_embeddings(ids) + self.position_embeddings(places) + self.token_type_embeddings(types))


bert = exact(BertEmbeddings())
tokens = ids(11, 3, 7)
tokens[0, 4:] = 0
case("bert", bert, tokens, ids(2, 3, 7), module=bert)
write("layers")

# --- Optimisers: ten steps along given gradients ---


def trajectory(name, optimizer, sparse=False):
    """A table (5, 3), and a second parameter that has a gradient in every other step only."""
    start, gradients = normal(5, 3), normal(10, 5, 3)
    rows = torch.stack([torch.randperm(5)[:2].sort().values for _ in range(10)])
    table, other = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start[0].clone())
    step, tables, others = optimizer([table, other]), [], []
    for t in range(10):
        if sparse:
            table.grad = torch.sparse_coo_tensor(rows[t][None], gradients[t][rows[t]], (5, 3))
            other.grad = None
        else:
            table.grad = gradients[t].clone()
            other.grad = gradients[t][0].clone() if t % 2 == 0 else None
        step.step()
        tables.append(table.detach().clone())
        others.append(other.detach().clone())
    cases.update({f"{name}/start": start, f"{name}/gradients": gradients, f"{name}/rows": rows,
                  f"{name}/table": torch.stack(tables), f"{name}/other": torch.stack(others)})


optim = torch.optim
trajectory("sgd", lambda p: optim.SGD(p, lr=0.1))
trajectory("sgd momentum", lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01))
trajectory("sgd dampening", lambda p: optim.SGD(p, lr=0.1, momentum=0.8, dampening=0.3))
trajectory("sgd nesterov", lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1))
trajectory("adam", lambda p: optim.Adam(p, lr=0.01))
trajectory("adam decay", lambda p: optim.Adam(p, lr=0.01, betas=(0.8, 0.99), eps=1e-4, weight_decay=0.1))
trajectory("adamw", lambda p: optim.AdamW(p, lr=0.01))
trajectory("adamw decay", lambda p: optim.AdamW(p, lr=0.01, betas=(0.8, 0.99), weight_decay=0.3))
trajectory("sparse sgd", lambda p: optim.SGD(p, lr=0.1), sparse=True)
# Without eps, which SparseAdam adds before the bias correction and everybody else after it.
trajectory("sparse adam", lambda p: optim.SparseAdam(p, lr=0.01, betas=(0.8, 0.99), eps=1e-100), sparse=True)

clipped = [normal(5, 3), normal(7)]
for name, limit in [("clip", 0.7), ("clip not", 1e3)]:
    parameters = [torch.nn.Parameter(torch.zeros_like(g)) for g in clipped]
    for parameter, gradient in zip(parameters, clipped):
        parameter.grad = gradient.clone()
    total = torch.nn.utils.clip_grad_norm_(parameters, limit)
    cases.update({f"{name}/in0": clipped[0], f"{name}/in1": clipped[1], f"{name}/norm": total,
                  f"{name}/out0": parameters[0].grad, f"{name}/out1": parameters[1].grad})
parameters = [torch.nn.Parameter(torch.zeros_like(g)) for g in clipped]
for parameter, gradient in zip(parameters, clipped):
    parameter.grad = gradient.clone()
torch.nn.utils.clip_grad_value_(parameters, 0.75)
cases.update({"clip value/in0": clipped[0], "clip value/in1": clipped[1], "clip value/out0": parameters[0].grad,
              "clip value/out1": parameters[1].grad})

schedules = {"step_decay": lambda o: optim.lr_scheduler.StepLR(o, 3, 0.5),
             "linear_decay": lambda o: optim.lr_scheduler.LinearLR(o, 1.0, 0.25, 6),
             "cosine_decay": lambda o: optim.lr_scheduler.CosineAnnealingLR(o, 10, 0.25)}
for name, schedule in schedules.items():  # the factors of steps 1 to 10
    optimizer, factors = optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0), []
    scheduler = schedule(optimizer)
    for _ in range(10):
        factors.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    cases[f"schedule {name}/factors"] = torch.tensor(factors, dtype=torch.float64)
write("optim")

# --- A training run: a small GPT on sequences with rules ---

vocabulary, context, width, heads, batch, steps = 40, 32, 32, 4, 4, 200


class Gpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.ModuleDict({"token_embed": torch.nn.Embedding(vocabulary, width),
                                          "pos_embed": torch.nn.Embedding(context, width)})
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu", norm_first=True,
                                             batch_first=True) for _ in range(2))
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, vocabulary)

    def forward(self, ids):
        x = self.embed["token_embed"](ids) + self.embed["pos_embed"](torch.arange(context))
        future = torch.triu(torch.full((context, context), -math.inf, dtype=x.dtype), 1)
        for block in self.blocks:
            x = block(x, src_mask=future)
        return self.head(self.norm(x))


model = Gpt()
with torch.no_grad():
    for table in model.embed.values():
        table.weight.normal_(0, width**-0.5)
for key, value in model.state_dict().items():
    cases[f"weight/{key}"] = value.clone()
follows = ids(vocabulary, vocabulary, 3)  # the next token, by the last one and the one before, with some noise
text = ids(vocabulary, steps, batch, context + 1)
for i in range(2, context + 1):
    known = torch.rand(steps, batch) < 0.9
    text[:, :, i] = torch.where(known, follows[text[:, :, i - 1], text[:, :, i - 2] % 3], text[:, :, i])
cases["text"] = text.int()

model = model.double()
position = [p for n, p in model.named_parameters() if n.startswith("embed.pos_embed")]
rest = [p for n, p in model.named_parameters() if not n.startswith("embed.pos_embed")]
optimizer = optim.AdamW([{"params": rest}, {"params": position, "lr": 9e-3, "weight_decay": 0.5}], lr=3e-3,
                        betas=(0.9, 0.99), weight_decay=0.0)
scheduler = optim.lr_scheduler.LambdaLR(
    optimizer, lambda s: min(1, (s + 1) / 50) * (0.5 + 0.5 * math.cos(math.pi * (s + 1) / steps)))
losses = []
for step in range(steps):
    loss = F.cross_entropy(model(text[step, :, :-1]).flatten(0, 1), text[step, :, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.detach())
cases["losses"] = torch.stack(losses)
write("gpt")
print("loss", [round(float(x), 3) for x in losses[::40]], float(losses[-1]))
