#include <fmt/format.h>

#include "check.hpp"

namespace wengert {

using namespace detail;

Tensor embedding(const Tensor& weight, const Tensor& ids, const EmbeddingOptions& options) {
  check_defined("embedding", {&weight, &ids});
  check_operand("embedding", weight);
  check_same_backend("embedding", weight, ids);
  check_rank("embedding", "the table", weight, 2, "(rows, d)");
  check_padding("embedding", options.padding_idx, weight.size(0));
  const bool recorded = needs_record("embedding", {weight});
  const std::int64_t rows = weight.size(0), width = weight.size(1), count = ids.numel();
  const Tensor flat_ids = view(check_ids("embedding", "id", ids, rows, recorded), {count});
  Tensor flat = empty({count, width}, weight);
  flat.kernels().gather_rows(weight, flat_ids, flat);
  Tensor out = view(flat, ids.shape() + width);
  if (!recorded) return out;
  return record("embedding", out, {weight}, {flat_ids}, [rows, padding = options.padding_idx](BackwardStep& step) {
    const Tensor& grad = step.grad();
    const Tensor& at = step.saved()[0];
    step.give(
        0, grad.kernels().merge_rows(at, view(grad, {at.numel(), grad.size(-1)}), rows, padding));  // ids are checked
  });
}

namespace {

// Which rows of a table of `rows` positions belong to ids (batch, length).
Positions check_positions(const EmbedDropoutOptions& options, const Tensor& tokens, const Tensor& ids,
                          std::int64_t rows, bool own) {
  const char* op = "embed_dropout";
  const std::int64_t length = ids.size(-1);
  if (const Tensor& places = options.position_ids; places.defined()) {
    check_same_backend(op, tokens, places);
    if (!(places.shape() == Shape{length} || places.shape() == ids.shape()))
      throw ShapeError(fmt::format("{}: position_ids of shape {} do not fit ids of shape {}: allowed are [{}] and {}",
                                   op, places.shape().str(), ids.shape().str(), length, ids.shape().str()));
    return {check_ids(op, "position id", places, rows, own), 0};
  }
  const std::int64_t offset = options.offset;
  if (offset < 0) throw IndexError(fmt::format("{}: offset {} is negative", op, offset));
  if (offset > rows || length > rows - offset)
    throw IndexError(fmt::format("{}: offset {} + length {} = {} exceeds the {} positions of the table", op, offset,
                                 length, static_cast<std::uint64_t>(offset) + static_cast<std::uint64_t>(length),
                                 rows));
  return {Tensor(), offset};
}

}  // namespace

Tensor embed_dropout(const Tensor& tokens, const Tensor& positions, const Tensor& ids,
                     const EmbedDropoutOptions& options) {
  const char* op = "embed_dropout";
  check_defined(op, {&tokens, &positions, &ids});
  check_operands(op, tokens, positions);
  check_same_backend(op, tokens, ids);
  check_rank(op, "the token table", tokens, 2, "(V, d)");
  check_rank(op, "the position table", positions, 2, "(L, d)");
  if (tokens.size(1) != positions.size(1))
    throw ShapeError(fmt::format("{}: tables {} and {} do not fit: {} != {}", op, tokens.shape().str(),
                                 positions.shape().str(), tokens.size(1), positions.size(1)));
  if (ids.dim() != 1 && ids.dim() != 2)
    throw ShapeError(fmt::format("{}: ids must have shape (T) or (B, T), got {}", op, ids.shape().str()));
  check_probability(op, options.p);
  check_padding(op, options.padding_idx, tokens.size(0));

  const bool recorded = needs_record(op, {tokens, positions});
  const std::int64_t length = ids.size(-1), batch = ids.dim() == 2 ? ids.size(0) : 1, width = tokens.size(1);
  const Positions place = check_positions(options, tokens, ids, positions.size(0), recorded);
  const Tensor grid = view(check_ids(op, "id", ids, tokens.size(0), recorded), {batch, length});
  const Shape shape = ids.shape() + width;
  Tensor flat = empty({batch, length, width}, tokens);

  const Dropout drawing =
      draw_dropout(options.p, options.training, flat.numel());  // the last thing that could fail is done
  Saved kept;
  flat.kernels().embed_dropout(tokens, positions, grid, place, drawing, flat, kept);
  Tensor out = view(flat, shape);
  if (!recorded) return out;

  Saved saved{grid, place.ids};
  for (std::size_t i = 0; i < kept.size(); ++i) saved.push(kept[i]);
  return record(op, out, {tokens, positions}, saved,
                [drawing, start = place.start, token_rows = tokens.size(0), position_rows = positions.size(0),
                 padding = options.padding_idx](BackwardStep& step) {
                  const Tensor& at = step.saved()[0];
                  Saved of_kernel;
                  for (std::size_t i = 2; i < step.saved().size(); ++i) of_kernel.push(step.saved()[i]);
                  const Tensor grad = view(step.grad(), at.shape() + step.grad().size(-1));
                  RowGrad token_grad, position_grad;
                  grad.kernels().embed_dropout_backward(
                      grad, at, {step.saved()[1], start}, drawing, of_kernel, token_rows, position_rows, padding,
                      step.needs(0) ? &token_grad : nullptr, step.needs(1) ? &position_grad : nullptr);
                  if (step.needs(0)) step.give(0, token_grad);
                  if (step.needs(1)) step.give(1, position_grad);
                });
}

}  // namespace wengert
