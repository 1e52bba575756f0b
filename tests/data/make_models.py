"""Writes tiny models and what they compute, with random weights: pip install torch transformers safetensors; python make_models.py"""

import pathlib

import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

folder = pathlib.Path(__file__).parent
torch.manual_seed(1)


def scramble(model):
    """Larger weights than at the start, and norms that are not the identity, so that every tensor matters."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


ids = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]])

gpt2 = scramble(GPT2Model(GPT2Config(vocab_size=11, n_positions=6, n_embd=8, n_layer=2, n_head=2)))
state = {name: tensor.contiguous() for name, tensor in gpt2.state_dict().items()}
for layer in range(2):  # constants that old checkpoints hold
    state[f"h.{layer}.attn.bias"] = torch.tril(torch.ones(6, 6)).view(1, 1, 6, 6)
    state[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
save_file({f"transformer.{name}": tensor for name, tensor in state.items()}, folder / "gpt2.safetensors")
with torch.no_grad():
    save_file({"ids": ids, "out": gpt2(ids).last_hidden_state.contiguous()}, folder / "gpt2_out.safetensors")

config = BertConfig(vocab_size=11, max_position_embeddings=6, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
                    intermediate_size=12, attn_implementation="eager")
bert = scramble(BertModel(config, add_pooling_layer=False))
state = {name: tensor.contiguous() for name, tensor in bert.state_dict().items()}
state["embeddings.position_ids"] = torch.arange(6)[None]
save_file({f"bert.{name}": tensor for name, tensor in state.items()}, folder / "bert.safetensors")
types = torch.tensor([[0, 0, 1, 1, 1], [0, 0, 0, 1, 1]])
mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
with torch.no_grad():
    out = bert(ids, attention_mask=mask, token_type_ids=types).last_hidden_state
save_file({"ids": ids, "types": types, "mask": mask, "out": out.contiguous()}, folder / "bert_out.safetensors")
