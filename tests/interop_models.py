"""interop_models.py write|check FOLDER: a small random GPT-2 of transformers goes to Wengert, and one of Wengert's comes back."""

import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

folder = pathlib.Path(sys.argv[2])
config = GPT2Config(vocab_size=53, n_positions=19, n_embd=24, n_layer=3, n_head=3, bos_token_id=None,
                    eos_token_id=None)

if sys.argv[1] == "write":
    torch.manual_seed(7)
    model = GPT2LMHeadModel(config).eval()
    ids = torch.randint(config.vocab_size, (2, 17))
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases that are not where they start
            parameter.add_(0.2 * torch.randn_like(parameter))
        logits = model(ids).logits
    model.save_pretrained(folder / "gpt2_theirs")
    save_file({"ids": ids, "logits": logits.contiguous()}, folder / "gpt2_theirs_out.safetensors")
else:
    config.save_pretrained(folder / "gpt2_ours")
    model, info = GPT2LMHeadModel.from_pretrained(folder / "gpt2_ours", output_loading_info=True)
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[what]:
            sys.exit(f"interop: transformers has {what}: {info[what]}")
    ours = load_file(folder / "gpt2_ours_out.safetensors")
    with torch.no_grad():
        logits = model.eval()(ours["ids"]).logits
    largest = (logits - ours["logits"]).abs().max().item()
    print(f"interop: GPT-2 saved here gives in transformers the same logits within {largest:.1e} of {logits.abs().max():.1f}")
    if logits.shape != ours["logits"].shape or not largest < 1e-4:
        sys.exit("interop: the logits differ")
