#pragma once
/// What a table of vectors has learned: similarities of its rows, principal components, rank correlations.
/// Everything is computed in double on the host; meant for tables of up to a few hundred rows.

#include <cstdint>
#include <span>
#include <vector>

#include "wengert/tensor.hpp"

namespace wengert::report {

/// A row-major matrix of doubles on the host.
struct Matrix {
  std::vector<double> values;
  std::int64_t rows = 0;
  std::int64_t cols = 0;

  double operator()(std::int64_t row, std::int64_t col) const {
    return values[static_cast<std::size_t>(row * cols + col)];
  }
  double& operator()(std::int64_t row, std::int64_t col) { return values[static_cast<std::size_t>(row * cols + col)]; }
  std::span<const double> row(std::int64_t i) const {
    return std::span(values).subspan(static_cast<std::size_t>(i * cols), static_cast<std::size_t>(cols));
  }
};

/// The values of a two-dimensional tensor, wherever it lives. Throws ShapeError for another rank.
Matrix to_matrix(const Tensor& tensor);
Matrix transpose(const Matrix& matrix);

/// Cosine of every row with every row: (rows, rows). A row of zeros has cosine 0 with all others and 1 with itself.
Matrix cosine_matrix(const Matrix& table);
/// Mean cosine of the rows `distance` apart. Throws ValueError unless 0 <= distance < rows.
double cosine_at(const Matrix& table, std::int64_t distance);
/// Share of the rows whose nearest other row by cosine is the one before or after it. Throws ValueError below 3 rows.
double adjacency(const Matrix& table);
/// Pearson correlation, over all pairs of rows, of -|i - j| with their cosine. Throws ValueError below 3 rows.
double mantel(const Matrix& table);
/// Euclidean length of each row.
std::vector<double> row_norms(const Matrix& table);
/// The mean of row i + 1 minus row i: where one step along the table leads.
std::vector<double> mean_step(const Matrix& table);

/// Eigenvalues, descending, and eigenvectors (the rows of `vectors`) of a symmetric matrix: cyclic Jacobi rotations.
struct Eigen {
  std::vector<double> values;
  Matrix vectors;
};
Eigen eigen_symmetric(Matrix symmetric);

/// Principal components of the centred table.
struct Components {
  std::vector<double> variance_share;  ///< of each component, descending; all zero for a table of equal rows
  Matrix scores;                       ///< (rows, components): the coordinates of the rows
};
Components principal_components(const Matrix& table);
/// Share of the variance that the first `n` components (or all there are) hold.
double variance_share(const Components& components, std::int64_t n);
/// R^2 of the least-squares prediction, with an intercept, of all columns of `features` (rows, f) from the first `n`
/// component scores; residuals and totals are summed over the columns. Throws ShapeError unless the rows match.
double r2_on_components(const Components& components, const Matrix& features, std::int64_t n);

/// 1 - sum (target - prediction)^2 / sum (target - mean target)^2; each column has its own mean, and the sums go over
/// all columns. Throws ShapeError unless the shapes match.
double r2(const Matrix& prediction, const Matrix& target);

/// 0 when one of them is constant. All three throw ShapeError unless the lengths match.
double pearson(std::span<const double> a, std::span<const double> b);
/// Correlation of the ranks; ties get the mean of their ranks.
double spearman(std::span<const double> a, std::span<const double> b);
/// 0 when one of them is all zeros.
double cosine(std::span<const double> a, std::span<const double> b);

}  // namespace wengert::report
