"""What torch_peer.py does of transformers: Block and Transformer are what ours_transformer.cpp has."""
import torch
from torch import nn
from torch.nn import functional as F

CONFIGURATIONS = {  # vocabulary, limit, width, batch, length, blocks, heads
    "block256": (0, 0, 768, 4, 256, 1, 12),
    "block1024": (0, 0, 768, 4, 1024, 1, 12),
    "gpt2_64": (50257, 1024, 768, 4, 64, 12, 12),
    "gpt2_256": (50257, 1024, 768, 4, 256, 12, 12),
}


class GptBlock(nn.Module):
    """Starts and drops as torch.nn.TransformerEncoderLayer does, with one kernel for attention."""

    def __init__(self, width, heads, p):
        super().__init__()
        self.heads, self.p = heads, p
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.in_proj, self.out_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.linear1, self.linear2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        nn.init.xavier_uniform_(self.in_proj.weight)
        for linear in (self.in_proj, self.out_proj):
            nn.init.zeros_(linear.bias)

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = self.in_proj(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p, is_causal=True)
        return self.out_proj(out.transpose(1, 2).reshape(batch, length, width))

    def drop(self, x):
        return F.dropout(x, self.p) if self.p else x

    def forward(self, x):
        x = x + self.drop(self.attention(self.norm1(x)))
        hidden = self.drop(F.gelu(self.linear1(self.norm2(x)), approximate="tanh"))
        return x + self.drop(self.linear2(hidden))


class Gpt(nn.Module):
    def __init__(self, vocabulary, limit, width, blocks, heads, tied, sparse, chunked):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width, sparse=sparse), nn.Embedding(limit, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads, 0.0) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)
        self.head = self.tokens.weight if tied else nn.Parameter(0.02 * torch.randn(vocabulary, width))
        self.chunks = nn.LinearCrossEntropyOptions() if chunked else None

    def loss(self, ids, following):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        x = self.norm(x).flatten(0, 1)
        if self.chunks is not None:
            return F.linear_cross_entropy(x, self.head, following.flatten(), options=self.chunks)
        return F.cross_entropy(F.linear(x, self.head), following.flatten())


class Block:
    def __init__(self, configuration, device):
        _, _, width, batch, length, _, heads = configuration
        self.block = GptBlock(width, heads, 0.1).to(device)
        self.input = torch.randn(batch, length, width, device=device, requires_grad=True)
        self.upstream = torch.randn(batch, length, width, device=device)

    def prepare(self, work, variant):
        self.backward = work == "block_forward_backward"
        self.forward = torch.compile(self.block) if variant == "compile" else self.block

    def run(self, _):
        out = self.forward(self.input)
        if not self.backward:
            return
        out.backward(self.upstream)
        self.block.zero_grad()
        self.input.grad = None


class Transformer:
    def __init__(self, configuration, device):
        self.configuration, self.device = configuration, device

    def prepare(self, work, variant):
        vocabulary, limit, width, _, _, blocks, heads = self.configuration
        sparse = variant == "sparse"
        self.model = Gpt(vocabulary, limit, width, blocks, heads, work == "transformer_step", sparse,
                         variant == "chunked").to(self.device)
        how = {"foreach": True} if variant == "foreach" else {"fused": True}
        table = self.model.tokens.weight
        others = [p for p in self.model.parameters() if not (sparse and p is table)]
        self.optimizers = [torch.optim.AdamW(others, lr=1e-4, weight_decay=0.01, **how)]
        if sparse:
            self.optimizers.append(torch.optim.SparseAdam([table], lr=1e-4))

    def run(self, ids):
        self.model.loss(ids[:, :-1], ids[:, 1:]).backward()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
