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

// Labels for rows of logits, checked: flat, int64, and their range.
struct Labels {
  Tensor flat;
  IdRange range;

  Labels(const char* op, const Tensor& labels, const Shape& lead, std::int64_t classes, std::int64_t ignore, bool own)
      : flat(view(int64_ids(op, "label", labels, own), {lead.numel()})), range(id_range(labels, flat)) {
    // Ignored labels outside the classes cost a second look at every call: a range that leaves some out is not cached.
    if (!range.within(classes) && !flat.kernels().id_range(flat, ignore).within(classes))
      throw_bad_id(op, "label", view(flat, lead), classes, ignore);
  }
};

// The number of labels other than `ignore`, but at least 1, as a scalar like `like`. Counted by the backend, so that
// the host need not wait, unless `ignore` is so large that a class could be rounded to it: beyond 2^24 in float32.
Tensor count_labels(const Tensor& labels, std::int64_t ignore, const IdRange& range, const Tensor& like) {
  const auto all = static_cast<double>(labels.numel());
  if (ignore < range.smallest || ignore > range.largest) return full({}, std::max(all, 1.0), like);
  if (ignore >= std::int64_t{1} << 24) {
    const auto values = labels.to_vector<std::int64_t>();
    const auto ignored = static_cast<double>(std::count(values.begin(), values.end(), ignore));
    return full({}, std::max(all - ignored, 1.0), like);
  }
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
  const Labels checked(op, labels, lead, classes, ignore, recorded);
  Tensor flat = empty({rows}, logits), norms = empty({rows, 2}, logits);
  const CrossEntropy kernel{ignore, options.label_smoothing};
  flat.kernels().cross_entropy(kernel, view(logits, {rows, classes}), checked.flat, flat, norms);
  Tensor losses = view(flat, lead);
  if (recorded) {
    losses = record(op, losses, {logits}, {logits, checked.flat, norms}, [kernel](BackwardStep& step) {
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
  return div(sum(losses), count_labels(checked.flat, ignore, checked.range, logits));
}

namespace {

// Rows [first, first + count) of a matrix: itself, or a copy.
Tensor some_rows(const Tensor& x, std::int64_t first, std::int64_t count) {
  if (count == x.size(0)) return x;
  Tensor out = empty(x.shape().with(0, count), x);
  StridedView from = row_major(out.shape());
  from.offset = first * out.numel() / count;
  out.kernels().copy_strided(out.shape(), x, from, out, row_major(out.shape()));
  return out;
}

void put_rows(const Tensor& from, std::int64_t first, Tensor& x) {
  StridedView to = row_major(from.shape());
  to.offset = first * from.numel() / from.size(0);
  x.kernels().copy_strided(from.shape(), from, row_major(from.shape()), x, to);
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& labels,
                            const CrossEntropyOptions& options) {
  const char* op = "linear_cross_entropy";
  check_defined(op, {&x, &weight, &labels});
  check_operands(op, x, weight);
  check_same_backend(op, x, labels);
  check_rank(op, "the weight", weight, 2, "(classes, in)");
  const std::int64_t classes = weight.size(0), in = weight.size(1);
  if (x.dim() == 0 || x.size(-1) != in)
    throw ShapeError(fmt::format("{}: input {} and weight {} do not fit: the last axis must be {}", op, x.shape().str(),
                                 weight.shape().str(), in));
  const Shape lead = x.shape().without(-1);
  if (!(labels.shape() == lead))
    throw ShapeError(fmt::format("{}: input {} needs labels of shape {}, got {}", op, x.shape().str(), lead.str(),
                                 labels.shape().str()));
  check_label_smoothing(op, options.label_smoothing);
  if (options.reduction == Reduction::none) return cross_entropy(linear(x, weight), labels, options);
  const bool recorded = needs_record(op, {x, weight});
  const Labels checked(op, labels, lead, classes, options.ignore_index, false);

  const std::int64_t rows = lead.numel();
  const Tensor flat = view(x, {rows, in});
  Tensor count = options.reduction == Reduction::mean
                     ? count_labels(checked.flat, options.ignore_index, checked.range, x)
                     : full({}, 1.0, x);
  Tensor losses = empty({rows}, x);
  // The gradients, for an upstream gradient of 1.
  Tensor grad_x = recorded && x.requires_grad() ? empty(flat.shape(), x) : Tensor();
  Tensor grad_weight = recorded && weight.requires_grad() ? empty(weight.shape(), weight) : Tensor();
  if (grad_weight.defined() && rows == 0) grad_weight.fill_(0.0);
  const Tensor share = recorded ? unary(Unary::rdiv_scalar, count, 1.0) : Tensor();  // of a row in the result
  const CrossEntropy kernel{options.ignore_index, options.label_smoothing};
  Kernels& kernels = x.kernels();
  constexpr std::int64_t most = 256;  // rows at a time: products stay fast, and their results small
  for (std::int64_t first = 0; first < rows; first += most) {
    const std::int64_t some = std::min(most, rows - first);
    const Tensor input = some_rows(flat, first, some), at = some_rows(checked.flat, first, some);
    Tensor logits = empty({some, classes}, x), loss = empty({some}, x), norms = empty({some, 2}, x);
    kernels.linear(input, weight, {}, logits);
    kernels.cross_entropy(kernel, logits, at, loss, norms);
    put_rows(loss, first, losses);
    if (!recorded) continue;
    const Tensor each = expand(share, {some});
    Tensor grad = empty(logits.shape(), x);
    kernels.cross_entropy_backward(kernel, each, logits, at, norms, grad);
    if (grad_x.defined()) {
      Tensor to = empty(input.shape(), x);
      kernels.matmul({.m = some, .n = in, .k = classes}, grad, weight, to);
      put_rows(to, first, grad_x);
    }
    if (grad_weight.defined())
      kernels.matmul({.m = classes, .n = in, .k = some, .trans_a = true, .beta = first > 0 ? 1.0 : 0.0}, grad, input,
                     grad_weight);
  }
  Tensor out = binary(Binary::div, reduce(Reduce::sum, {1, rows, 1}, losses, {}), count);
  if (!recorded) return out;
  return record(op, out, {x, weight}, {grad_x, grad_weight}, [shape = x.shape()](BackwardStep& step) {
    const auto scaled = [&step](std::size_t i) {
      Tensor grad = step.take(i);
      grad.kernels().binary(Binary::mul, grad, step.grad(), grad);
      return grad;
    };
    if (step.needs(0)) step.give(0, view(scaled(0), shape));
    if (step.needs(1)) step.give(1, scaled(1));
  });
}

Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  check_operands("mse_loss", input, target);
  if (!(input.shape() == target.shape()))
    throw ShapeError(
        fmt::format("mse_loss: shapes {} and {} must be equal", input.shape().str(), target.shape().str()));
  return reduced(square(sub(input, target)), reduction);
}

}  // namespace wengert
