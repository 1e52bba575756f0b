#include "wengert/table_metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace wengert::report {

namespace {

double dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void require_rows(const char* what, const Matrix& table, std::int64_t least) {
  if (table.rows < least)
    throw ValueError(fmt::format("{}: the table has {} rows, needs at least {}", what, table.rows, least));
}

void require_equal_length(const char* what, std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) throw ShapeError(fmt::format("{}: {} values against {}", what, a.size(), b.size()));
}

/// The mean rank of each value, counted from 1.
std::vector<double> ranks(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) { return values[i] < values[j]; });
  std::vector<double> result(values.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t last = first + 1;
    while (last < order.size() && values[order[last]] == values[order[first]]) ++last;
    for (std::size_t i = first; i < last; ++i) result[order[i]] = static_cast<double>(first + last + 1) / 2;
    first = last;
  }
  return result;
}

}  // namespace

Matrix to_matrix(const Tensor& tensor) {
  if (tensor.dim() != 2) throw ShapeError("to_matrix: shape " + tensor.shape().str() + ", needs two axes");
  return {tensor.to_vector<double>(), tensor.size(0), tensor.size(1)};
}

Matrix transpose(const Matrix& matrix) {
  Matrix result{std::vector<double>(matrix.values.size()), matrix.cols, matrix.rows};
  for (std::int64_t i = 0; i < matrix.rows; ++i)
    for (std::int64_t j = 0; j < matrix.cols; ++j) result(j, i) = matrix(i, j);
  return result;
}

Matrix cosine_matrix(const Matrix& table) {
  const std::int64_t n = table.rows;
  Matrix result{std::vector<double>(static_cast<std::size_t>(n * n)), n, n};
  for (std::int64_t i = 0; i < n; ++i) {
    const double itself = cosine(table.row(i), table.row(i));
    result(i, i) = std::isnan(itself) ? itself : 1.0;
    for (std::int64_t j = 0; j < i; ++j) result(i, j) = result(j, i) = cosine(table.row(i), table.row(j));
  }
  return result;
}

double cosine_at(const Matrix& table, std::int64_t distance) {
  if (distance < 0 || distance >= table.rows)
    throw ValueError(fmt::format("cosine_at: distance {} is outside [0, {})", distance, table.rows));
  double sum = 0.0;
  for (std::int64_t i = 0; i + distance < table.rows; ++i) sum += cosine(table.row(i), table.row(i + distance));
  return sum / static_cast<double>(table.rows - distance);
}

double adjacency(const Matrix& table) {
  require_rows("adjacency", table, 3);
  const Matrix cosines = cosine_matrix(table);
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < table.rows; ++i) {
    std::int64_t nearest = i == 0 ? 1 : 0;
    for (std::int64_t j = 0; j < table.rows; ++j)
      if (j != i && cosines(i, j) > cosines(i, nearest)) nearest = j;
    count += std::abs(nearest - i) == 1;
  }
  return static_cast<double>(count) / static_cast<double>(table.rows);
}

double mantel(const Matrix& table) {
  require_rows("mantel", table, 3);
  std::vector<double> closeness, similarity;
  for (std::int64_t i = 0; i < table.rows; ++i) {
    for (std::int64_t j = 0; j < i; ++j) {
      closeness.push_back(-static_cast<double>(i - j));
      similarity.push_back(cosine(table.row(i), table.row(j)));
    }
  }
  return pearson(closeness, similarity);
}

std::vector<double> row_norms(const Matrix& table) {
  std::vector<double> norms;
  for (std::int64_t i = 0; i < table.rows; ++i) norms.push_back(std::sqrt(dot(table.row(i), table.row(i))));
  return norms;
}

std::vector<double> mean_step(const Matrix& table) {
  require_rows("mean_step", table, 2);
  std::vector<double> step;
  for (std::int64_t j = 0; j < table.cols; ++j)  // the steps between the first and the last row cancel
    step.push_back((table(table.rows - 1, j) - table(0, j)) / static_cast<double>(table.rows - 1));
  return step;
}

namespace {

/// Rotates two vectors of n values: p = c p - s q, q = s p + c q.
void rotate(double* __restrict p, double* __restrict q, std::int64_t n, double c, double s) {
  for (std::int64_t k = 0; k < n; ++k) {
    const double from_p = p[k], from_q = q[k];
    p[k] = c * from_p - s * from_q;
    q[k] = s * from_p + c * from_q;
  }
}

}  // namespace

Eigen eigen_symmetric(Matrix a) {
  const std::int64_t n = a.rows;
  Matrix v{std::vector<double>(a.values.size(), 0.0), n, n};
  for (std::int64_t i = 0; i < n; ++i) v(i, i) = 1.0;
  const double scale = dot(a.values, a.values);
  for (int sweep = 0; sweep < 100; ++sweep) {
    double off = 0.0;
    for (std::int64_t p = 0; p < n; ++p)
      for (std::int64_t q = 0; q < p; ++q) off += 2 * a(p, q) * a(p, q);
    if (off <= 1e-28 * scale) break;
    for (std::int64_t p = 0; p < n; ++p) {
      for (std::int64_t q = p + 1; q < n; ++q) {
        const double pp = a(p, p), qq = a(q, q), pq = a(p, q);
        if (pq * pq <= 1e-32 * scale) continue;
        // The rotation by the smaller angle that makes a(p, q) zero (Golub and Van Loan, 8.5.2).
        const double theta = (qq - pp) / (2 * pq);
        const double t = std::copysign(1.0, theta) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        rotate(&a(p, 0), &a(q, 0), n, c, s);
        for (std::int64_t k = 0; k < n; ++k) {  // the columns are the rows
          a(k, p) = a(p, k);
          a(k, q) = a(q, k);
        }
        a(p, p) = pp - t * pq;
        a(q, q) = qq + t * pq;
        a(p, q) = a(q, p) = 0.0;
        rotate(&v(p, 0), &v(q, 0), n, c, s);
      }
    }
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) { return a(i, i) > a(j, j); });
  Eigen result{{}, {{}, n, n}};
  for (const std::int64_t i : order) {
    result.values.push_back(a(i, i));
    result.vectors.values.insert(result.vectors.values.end(), v.row(i).begin(), v.row(i).end());
  }
  return result;
}

Components principal_components(const Matrix& table) {
  Matrix centred = table;
  for (std::int64_t j = 0; j < table.cols; ++j) {
    double mean = 0.0;
    for (std::int64_t i = 0; i < table.rows; ++i) mean += table(i, j) / static_cast<double>(table.rows);
    for (std::int64_t i = 0; i < table.rows; ++i) centred(i, j) -= mean;
  }
  // The rows' Gram matrix and the columns' have the same eigenvalues: take the smaller one.
  const bool by_rows = table.rows < table.cols;
  const Matrix vectors = by_rows ? centred : transpose(centred);
  const std::int64_t n = vectors.rows;
  Matrix gram{std::vector<double>(static_cast<std::size_t>(n * n)), n, n};
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j <= i; ++j) gram(i, j) = gram(j, i) = dot(vectors.row(i), vectors.row(j));
  const Eigen eigen = eigen_symmetric(std::move(gram));

  double total = 0.0;
  for (const double value : eigen.values) total += std::max(value, 0.0);
  Components result{{}, {std::vector<double>(static_cast<std::size_t>(table.rows * n)), table.rows, n}};
  for (std::int64_t k = 0; k < n; ++k) {
    const double value = std::max(eigen.values[static_cast<std::size_t>(k)], 0.0);
    result.variance_share.push_back(total > 0 ? value / total : 0.0);
    for (std::int64_t i = 0; i < table.rows; ++i)
      result.scores(i, k) =
          by_rows ? eigen.vectors(k, i) * std::sqrt(value) : dot(centred.row(i), eigen.vectors.row(k));
  }
  return result;
}

double variance_share(const Components& components, std::int64_t n) {
  const auto count = std::min(static_cast<std::size_t>(n), components.variance_share.size());
  return std::accumulate(components.variance_share.begin(),
                         components.variance_share.begin() + static_cast<std::ptrdiff_t>(count), 0.0);
}

double r2_on_components(const Components& components, const Matrix& features, std::int64_t n) {
  const Matrix scores = transpose(components.scores), columns = transpose(features);
  if (components.scores.rows != features.rows)
    throw ShapeError(
        fmt::format("r2_on_components: {} rows of scores, {} of features", components.scores.rows, features.rows));
  double total = 0.0, explained = 0.0;
  for (std::int64_t f = 0; f < columns.rows; ++f) {
    std::vector<double> target(columns.row(f).begin(), columns.row(f).end());
    const double mean = mean_of(target);
    for (double& value : target) value -= mean;
    total += dot(target, target);
    // The scores are orthogonal and centred, so each explains its own part.
    for (std::int64_t k = 0; k < std::min(n, scores.rows); ++k) {
      const double length = dot(scores.row(k), scores.row(k));
      if (components.variance_share[static_cast<std::size_t>(k)] < 1e-12) continue;
      const double projection = dot(scores.row(k), target);
      explained += projection * projection / length;
    }
  }
  return total > 0 ? explained / total : 0.0;
}

double pearson(std::span<const double> a, std::span<const double> b) {
  require_equal_length("pearson", a, b);
  const double mean_a = mean_of(a), mean_b = mean_of(b);
  double ab = 0.0, aa = 0.0, bb = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0.0;
}

double spearman(std::span<const double> a, std::span<const double> b) {
  require_equal_length("spearman", a, b);
  return pearson(ranks(a), ranks(b));
}

double cosine(std::span<const double> a, std::span<const double> b) {
  require_equal_length("cosine", a, b);
  const double lengths = std::sqrt(dot(a, a)) * std::sqrt(dot(b, b));
  return lengths == 0 ? 0.0 : dot(a, b) / lengths;  // NaN stays NaN
}

double r2(const Matrix& prediction, const Matrix& target) {
  if (prediction.rows != target.rows || prediction.cols != target.cols)
    throw ShapeError(fmt::format("r2: prediction ({}, {}) against target ({}, {})", prediction.rows, prediction.cols,
                                 target.rows, target.cols));
  const Matrix predicted = transpose(prediction), wanted = transpose(target);
  double residual = 0.0, total = 0.0;
  for (std::int64_t j = 0; j < wanted.rows; ++j) {
    const double mean = mean_of(wanted.row(j));
    for (std::int64_t i = 0; i < wanted.cols; ++i) {
      residual += (wanted(j, i) - predicted(j, i)) * (wanted(j, i) - predicted(j, i));
      total += (wanted(j, i) - mean) * (wanted(j, i) - mean);
    }
  }
  return 1 - residual / total;
}

}  // namespace wengert::report
