#pragma once
// The parts of the shared list of cases.

#include "cases.hpp"

namespace wengert::cases {

using Inputs = std::vector<Tensor>;

void add_elementwise(std::vector<Case>& cases);
void add_reductions(std::vector<Case>& cases);
void add_shapes(std::vector<Case>& cases);
void add_linear(std::vector<Case>& cases);
void add_losses(std::vector<Case>& cases);
void add_embeddings(std::vector<Case>& cases);
void add_normalization(std::vector<Case>& cases);
void add_attention(std::vector<Case>& cases);

}  // namespace wengert::cases
