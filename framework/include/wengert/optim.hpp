#pragma once
/// Optimisers, learning-rate schedules and gradient clipping. Names, defaults and meanings are PyTorch's.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "wengert/named.hpp"
#include "wengert/tensor.hpp"

namespace wengert::optim {

/// What a row-sparse gradient does to the rows of the table that it does not hold.
enum class RowUpdate : std::uint8_t {
  /// They step with gradient 0, as in PyTorch's dense optimisers: momentum moves them on, weight decay shrinks them (a
  /// padding row too). The work of a step follows the table.
  dense,
  /// They and their moments stay as they are, to the bit, and are not decayed, as in PyTorch's SparseAdam. The work of
  /// a step follows the batch. A row that is present uses the step number of its table (the number of steps in which
  /// the table had a gradient), not a count of its own; momentum SGD follows the same rule.
  lazy,
};

/// Parameters with settings of their own; what is not given is the optimiser's.
struct ParameterGroup {
  NamedTensors parameters;
  std::optional<double> lr{};
  std::optional<double> weight_decay{};
  std::optional<RowUpdate> rows{};
};

/// What an optimiser has accumulated, for checkpoints. The tensors share memory with the optimiser; `clone` them to
/// keep the present values. Settings (learning rates, schedule, ...) are the script's and not in here.
struct OptimizerState {
  struct Counter {
    std::string name;
    std::int64_t value = 0;
  };
  std::int64_t step_count = 0;
  std::vector<Counter> steps;  ///< of each parameter, under its name
  NamedTensors tensors;        ///< "<parameter>.exp_avg", "<parameter>.exp_avg_sq", "<parameter>.momentum_buffer"
};

/// Base of the optimisers: parameter groups, the loop over them, schedule and state.
///
/// A parameter without a gradient, or that does not require grad, is left untouched: no decay, no momentum, and its
/// step number stands still. State follows a parameter that was moved to another backend. A step never changes a
/// gradient.
class Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  /// Adds parameters. Throws ValueError, and adds nothing, for a tensor or a name that the optimiser has already (list
  /// tied weights once, as `named_parameters` does) and for an empty group; DTypeError for integers.
  void add_group(ParameterGroup group);

  /// Removes every gradient.
  void zero_grad();
  /// One step along the present gradients, on the backend of each parameter. Throws, before anything has changed, when
  /// a parameter has another shape than it had (ShapeError) or is no longer in the model: some other tensor has taken
  /// its place there and only the optimiser still holds this one (Error).
  void step();
  /// Steps done, whatever they found to do.
  std::int64_t step_count() const { return step_count_; }

  /// Step n (counted from 1: the n-th call of `step`) uses lr * factor(n) of each group. An empty function means
  /// factor 1. The factor depends on n alone, so a run that resumes with the saved `step_count` goes on with the same
  /// rates. `linear_warmup(n, 4) * step_decay(n - 4, 2, 0.1)`, say, with lr 1, steps with
  ///
  ///     n     1    2    3    4    5    6    7    8    9     10
  ///     lr  0.25  0.5  0.75  1    1    1   0.1  0.1  0.01  0.01
  ///
  /// A factor that is negative, infinite or NaN makes `step` throw ValueError.
  void set_schedule(std::function<double(std::int64_t step)> factor) { schedule_ = std::move(factor); }

  std::size_t num_groups() const { return groups_.size(); }
  /// The group's learning rate before the schedule. Throws IndexError, as the next two do, when there is no such group.
  double lr(std::size_t group = 0) const { return group_at(group).lr; }
  /// Throws ValueError unless lr >= 0.
  void set_lr(double lr, std::size_t group = 0);
  /// The rate that the last step used; 0 before the first.
  double last_lr(std::size_t group = 0) const { return group_at(group).last_lr; }

  /// The parameters of all groups, in order.
  NamedTensors named_parameters() const;

  OptimizerState state_dict() const;
  /// Goes on from `state`: the values are copied. Everything is checked first: a parameter or a state tensor that is
  /// missing, not known here, or of another shape or type throws one Error that lists them all, and nothing has
  /// changed.
  void load_state_dict(const OptimizerState& state);

 protected:
  static constexpr std::size_t max_state = 2;
  struct Parameter {
    std::string name;
    Tensor tensor;
    Shape shape;
    std::size_t group = 0;
    std::int64_t steps = 0;
    Tensor state[max_state] = {};  ///< like the parameter; made, as zeros, in its first step
  };
  struct Group {
    double lr = 0.0, weight_decay = 0.0;
    RowUpdate rows = RowUpdate::dense;
    double last_lr = 0.0;
  };

  /// `kind` and `state_names` are literals; `defaults` are for groups that do not say otherwise.
  Optimizer(const char* kind, std::vector<const char*> state_names, const Group& defaults);
  /// Steps one parameter that has a gradient; `parameter.steps` counts this step already.
  virtual void update(Parameter& parameter, const Group& group, double lr) = 0;

  const char* kind() const { return kind_; }
  const Group& group_at(std::size_t group) const;
  /// Throws ValueError unless `low <= value < high`, with the name of the optimiser and of the setting.
  void require(const char* setting, double value, double low, double high) const;

 private:
  friend double clip_grad_norm(const Optimizer& optimizer, double max_norm, bool error_if_nonfinite);
  friend void clip_grad_value(const Optimizer& optimizer, double clip_value);

  const char* kind_;
  std::vector<const char*> state_names_;
  Group defaults_;
  std::vector<Group> groups_;
  std::vector<Parameter> parameters_;
  std::function<double(std::int64_t)> schedule_;
  std::int64_t step_count_ = 0;
};

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0.0;
  double dampening = 0.0;  ///< of the gradient on its way into the momentum; not in the first step
  double weight_decay = 0.0;
  bool nesterov = false;  ///< needs momentum and no dampening
  RowUpdate rows = RowUpdate::dense;
};

/// g += weight_decay * p;  b = momentum * b + (1 - dampening) * g;  p -= lr * (nesterov ? g + momentum * b : b).
class SGD : public Optimizer {
 public:
  /// Throws ValueError for settings out of range, and as `add_group`.
  explicit SGD(NamedTensors parameters, const SGDOptions& options = {});
  explicit SGD(std::vector<ParameterGroup> groups, const SGDOptions& options = {});

 protected:
  void update(Parameter& parameter, const Group& group, double lr) override;

 private:
  explicit SGD(const SGDOptions& options);
  double momentum_, dampening_;
  bool nesterov_;
};

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;  ///< added to the gradient, times the parameter
  RowUpdate rows = RowUpdate::dense;
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;  ///< decoupled: p -= lr * weight_decay * p, before the step
  RowUpdate rows = RowUpdate::dense;
};

/// p -= lr * m^ / (sqrt(v^) + eps) with m^ = m / (1 - beta1^t), v^ = v / (1 - beta2^t), where t counts the steps in
/// which this parameter had a gradient. Source: Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015.
class Adam : public Optimizer {
 public:
  /// Throws ValueError for settings out of range, and as `add_group`.
  explicit Adam(NamedTensors parameters, const AdamOptions& options = {});
  explicit Adam(std::vector<ParameterGroup> groups, const AdamOptions& options = {});

 protected:
  Adam(const char* kind, bool decoupled, const AdamOptions& options);
  void update(Parameter& parameter, const Group& group, double lr) override;

 private:
  double beta1_, beta2_, eps_;
  bool decoupled_;
};

/// Adam with decoupled weight decay. Source: Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019.
class AdamW : public Adam {
 public:
  explicit AdamW(NamedTensors parameters, const AdamWOptions& options = {});
  explicit AdamW(std::vector<ParameterGroup> groups, const AdamWOptions& options = {});
};

// --- Factors for `set_schedule` ---

/// step / warmup up to step `warmup`, 1 from there on; 1 for warmup <= 0. The first step uses 1 / warmup, not 0.
double linear_warmup(std::int64_t step, std::int64_t warmup);
/// factor^floor((step - 1) / every): the first `every` steps use 1, the next `every` steps use `factor`, ...; 1 for
/// every <= 0 and for steps before the first.
double step_decay(std::int64_t step, std::int64_t every, double factor);
/// Falls in a straight line from 1 at step 0 to `last` at step `total`, and stays there; 1 for total <= 0.
double linear_decay(std::int64_t step, std::int64_t total, double last = 0.0);
/// Falls along half a cosine wave from 1 at step 0 to `last` at step `total`, and stays there; 1 for total <= 0. Write
/// linear_warmup(n, w) * cosine_decay(n - w, total - w) to begin the fall after the warm-up: with w = 2 and total = 6,
///
///     n        1    2    3      4    5      6    7
///     factor  0.5   1  0.8536  0.5  0.1464  0    0
///
/// Source: Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts", ICLR 2017.
double cosine_decay(std::int64_t step, std::int64_t total, double last = 0.0);

// --- Clipping, between backward and step. Dense and row-sparse gradients alike; parameters without one are passed by.
//     Give the optimiser or a list of parameters; a tensor that is listed twice counts once. ---

/// Multiplies all gradients by min(1, max_norm / (norm + 1e-6)), where norm is the Euclidean norm of all of them
/// together, and returns the norm. A NaN or infinite norm spoils the gradients, as in PyTorch; with
/// `error_if_nonfinite` it throws Error instead, and nothing has changed. Throws ValueError unless max_norm >= 0. Waits
/// for the backend.
double clip_grad_norm(const Optimizer& optimizer, double max_norm, bool error_if_nonfinite = false);
double clip_grad_norm(std::span<const Tensor> parameters, double max_norm, bool error_if_nonfinite = false);
/// Clamps every element of every gradient to [-clip_value, clip_value]; NaN stays. Throws ValueError unless
/// clip_value > 0.
void clip_grad_value(const Optimizer& optimizer, double clip_value);
void clip_grad_value(std::span<const Tensor> parameters, double clip_value);

}  // namespace wengert::optim
