#pragma once
/// Gradients: dense, or row-sparse for tables.

#include <cstdint>
#include <optional>

#include "wengert/tensor.hpp"

namespace wengert {

/// The gradient of a table (rows, d) that only some rows received. Invariant: `ids` ascend without repeats, and both
/// tensors belong to this gradient alone. Copying a RowGrad copies handles; `clone` copies values.
struct RowGrad {
  Tensor ids{};               ///< (n), int64, ascending, unique
  Tensor rows{};              ///< (n, d)
  std::int64_t num_rows = 0;  ///< rows of the table

  /// Adds up the rows of equal ids, in the order of their place, by the fixed tree of docs/bits.md.
  /// ids (m) int64 in any order, rows (m, d). Rows whose id is `skip` are left out (the padding row). Throws
  /// ShapeError, DTypeError or BackendError for arguments that do not fit, IndexError for an id outside [0, num_rows).
  static RowGrad merge(const Tensor& ids, const Tensor& rows, std::int64_t num_rows,
                       std::optional<std::int64_t> skip = {});

  /// Throws Error, with `op` in its text, unless the invariant holds: ids (n) int64, ascending, unique, in [0,
  /// num_rows), and rows (n, d) on the same backend. Reads the ids.
  void check(const char* op) const;

  Shape shape() const { return {num_rows, rows.size(1)}; }
  /// Number of rows that are present.
  std::int64_t count() const { return ids.numel(); }
  /// The rows added into zeros: (num_rows, d).
  Tensor dense() const;
  RowGrad clone() const;
};

/// None, a dense tensor, or rows.
class Gradient {
 public:
  Gradient() = default;
  Gradient(Tensor dense) : dense_(std::move(dense)) {}  // NOLINT(google-explicit-constructor)
  Gradient(RowGrad rows) : rows_(std::move(rows)) {}    // NOLINT(google-explicit-constructor)

  bool defined() const { return is_dense() || is_rows(); }
  bool is_dense() const { return dense_.defined(); }
  bool is_rows() const { return rows_.rows.defined(); }
  /// The dense tensor; undefined unless is_dense().
  const Tensor& tensor() const { return dense_; }
  Tensor& tensor() { return dense_; }
  /// The rows; meaningful only if is_rows().
  const RowGrad& rows() const { return rows_; }
  RowGrad& rows() { return rows_; }

  Shape shape() const { return is_dense() ? dense_.shape() : rows_.shape(); }
  /// A dense tensor of the same value: the stored one, or the rows added into zeros.
  Tensor dense() const { return is_dense() ? dense_ : rows_.dense(); }
  /// The values that are stored: the dense tensor, or the (n, d) rows.
  const Tensor& values() const { return is_dense() ? dense_ : rows_.rows; }
  Tensor& values() { return is_dense() ? dense_ : rows_.rows; }

  /// Adds `other`: dense + rows and rows + dense are dense, rows + rows are merged rows. Takes the value of `other`
  /// over where it can, without sharing its storage.
  void add(Gradient other);
  /// Makes sure that no one else holds the storage, copying if somebody does.
  void own();

 private:
  Tensor dense_;
  RowGrad rows_;
};

}  // namespace wengert
