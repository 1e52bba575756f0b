#include <fmt/format.h>

#include <algorithm>

#include "check.hpp"

namespace wengert {

using namespace detail;

namespace {

Tensor softmax_over(const char* op, const Tensor& x, std::int64_t axis, bool log) {
  check_operand(op, x);
  axis = check_axis(op, x.shape(), axis);
  if (const std::int64_t last = x.dim() - 1; axis != last)
    return transpose(softmax_over(op, transpose(x, axis, last), last, log), axis, last);
  const Shape matrix{x.shape().product(0, axis), x.shape()[axis]};
  Tensor flat = empty(matrix, x);
  flat.kernels().softmax(view(x, matrix), log, flat);
  Tensor out = view(flat, x.shape());
  if (!needs_record(op, {x})) return out;
  return record(op, out, {x}, {flat}, [shape = x.shape(), log](BackwardStep& step) {
    const Tensor& y = step.saved()[0];
    Tensor grad = empty(y.shape(), y);
    grad.kernels().softmax_backward(view(step.grad(), y.shape()), y, log, grad);
    step.give(0, view(grad, shape));
  });
}

void check_label_smoothing(const char* op, double smoothing) {
  if (!(smoothing >= 0.0 && smoothing <= 1.0))
    throw ValueError(fmt::format("{}: label_smoothing {} is outside [0, 1]", op, smoothing));
}

Tensor reduced(const Tensor& losses, Reduction reduction) {
  switch (reduction) {
    case Reduction::none: return losses;
    case Reduction::sum: return sum(losses);
    case Reduction::mean: return mean(losses);
  }
  throw ValueError("loss: unknown reduction");
}

// The number of labels other than `ignore`, but at least 1, as a scalar like `like`. Counted by the backend, so that
// the host need not wait. Labels up to 2^24 are exact as float32; a class index is never larger.
Tensor count_labels(const Tensor& labels, std::int64_t ignore, const IdRange& range, const Tensor& like) {
  const auto all = static_cast<double>(labels.numel());
  if (ignore < range.smallest || ignore > range.largest) return full({}, std::max(all, 1.0), like);
  const Tensor ignored = binary(Binary::equal, labels.to(like.dtype()), full({}, static_cast<double>(ignore), like));
  const Tensor count = unary(Unary::rsub_scalar, reduce(Reduce::sum, {1, labels.numel(), 1}, ignored, {}), all);
  return unary(Unary::add_scalar, unary(Unary::relu, unary(Unary::add_scalar, count, -1.0)), 1.0);
}

}  // namespace

Tensor softmax(const Tensor& x, std::int64_t axis) { return softmax_over("softmax", x, axis, false); }
Tensor log_softmax(const Tensor& x, std::int64_t axis) { return softmax_over("log_softmax", x, axis, true); }

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options) {
  const char* op = "cross_entropy";
  check_defined(op, {&logits, &labels});
  check_operand(op, logits);
  check_same_backend(op, logits, labels);
  if (logits.dim() == 0) throw ShapeError(fmt::format("{}: logits must have shape (..., C), got []", op));
  const Shape lead = logits.shape().sub(0, logits.dim() - 1);
  if (!(labels.shape() == lead))
    throw ShapeError(fmt::format("{}: logits {} need labels of shape {}, got {}", op, logits.shape().str(), lead.str(),
                                 labels.shape().str()));
  check_label_smoothing(op, options.label_smoothing);
  const bool recorded = needs_record(op, {logits});
  const std::int64_t rows = lead.numel(), classes = logits.size(-1), ignore = options.ignore_index;
  const Tensor flat_labels = view(int64_ids(op, "label", labels, recorded), {rows});
  const IdRange range = id_range(labels, flat_labels);
  // Ignored labels outside the classes cost a second look at every call: a range that leaves some out is not cached.
  if (!range.within(classes) && !flat_labels.kernels().id_range(flat_labels, ignore).within(classes))
    throw_bad_id(op, "label", view(flat_labels, lead), classes, ignore);

  Tensor flat = empty({rows}, logits), norms = empty({rows, 2}, logits);
  const CrossEntropy kernel{ignore, options.label_smoothing};
  flat.kernels().cross_entropy(kernel, view(logits, {rows, classes}), flat_labels, flat, norms);
  Tensor losses = view(flat, lead);
  if (recorded) {
    losses = record(op, losses, {logits}, {logits, flat_labels, norms}, [kernel](BackwardStep& step) {
      const Tensor& scores = step.saved()[0];
      const Tensor& at = step.saved()[1];
      const Shape matrix{at.numel(), scores.size(-1)};
      Tensor grad = empty(matrix, scores);
      grad.kernels().cross_entropy_backward(kernel, view(step.grad(), at.shape()), view(scores, matrix), at,
                                            step.saved()[2], grad);
      step.give(0, view(grad, scores.shape()));
    });
  }
  if (options.reduction != Reduction::mean) return reduced(losses, options.reduction);
  return div(sum(losses), count_labels(flat_labels, ignore, range, logits));
}

Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  check_operands("mse_loss", input, target);
  if (!(input.shape() == target.shape()))
    throw ShapeError(
        fmt::format("mse_loss: shapes {} and {} must be equal", input.shape().str(), target.shape().str()));
  return reduced(square(sub(input, target)), reduction);
}

}  // namespace wengert
