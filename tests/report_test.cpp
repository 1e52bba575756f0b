/// Metrics of tables against inputs that can be checked by hand; progress lines, pictures and CSV files as they come
/// out.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <numbers>
#include <string>
#include <thread>

#include "file_tools.hpp"
#include "wengert/report.hpp"

namespace report = wengert::report;
using namespace wengert::testing;
using doctest::Approx;
using report::Matrix;

namespace {

constexpr double missing_value = std::numeric_limits<double>::quiet_NaN();

/// Row i is (cos, sin) of i steps around a circle of `n`.
Matrix circle(std::int64_t rows, double n) {
  Matrix table{{}, rows, 2};
  for (std::int64_t i = 0; i < rows; ++i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(i) / n;
    table.values.insert(table.values.end(), {std::cos(angle), std::sin(angle)});
  }
  return table;
}

std::uint32_t big_endian(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

}  // namespace

TEST_CASE("report: cosines of rows") {
  const Matrix table{{3, 4, -4, 3, 6, 8, 0, 0}, 4, 2};
  const Matrix cosines = report::cosine_matrix(table);
  CHECK(cosines(0, 0) == 1.0);
  CHECK(cosines(0, 1) == Approx(0.0));
  CHECK(cosines(0, 2) == Approx(1.0));
  CHECK(cosines(3, 0) == 0.0);
  CHECK(cosines(3, 3) == 1.0);
  CHECK(report::cosine_at(table, 2) == Approx(0.5));  // (0, 2): 1; (1, 3): 0
  CHECK(report::row_norms(table) == std::vector<double>{5, 5, 10, 0});
  CHECK_THROWS_AS(report::cosine_at(table, 4), wengert::ValueError);
  for (const std::int64_t k : {1, 2, 5})
    CHECK(report::cosine_at(circle(12, 24), k) == Approx(std::cos(2 * std::numbers::pi * static_cast<double>(k) / 24)));
}

TEST_CASE("report: adjacency and mantel") {
  CHECK(report::adjacency(circle(10, 40)) == 1.0);
  // In the order 0, 5, 1, 6, 2, 7, ... a neighbour on the circle is two rows away.
  Matrix shuffled{{}, 10, 2};
  const Matrix around = circle(10, 40);
  for (const std::int64_t i : {0, 5, 1, 6, 2, 7, 3, 8, 4, 9})
    shuffled.values.insert(shuffled.values.end(), around.row(i).begin(), around.row(i).end());
  CHECK(report::adjacency(shuffled) <= 0.2);
  CHECK(report::mantel(circle(10, 40)) > 0.95);
  CHECK(report::mantel(shuffled) < 0.5);
  // Distances 1, 1, 2 and cosines a, a, b: two points only, so the correlation is exactly 1.
  CHECK(report::mantel(circle(3, 12)) == Approx(1.0));
  CHECK_THROWS_AS(report::adjacency(Matrix{{1, 2}, 2, 1}), wengert::ValueError);
}

TEST_CASE("report: eigenvalues") {
  const report::Eigen two = report::eigen_symmetric({{2, 1, 1, 2}, 2, 2});
  CHECK(two.values[0] == Approx(3.0));
  CHECK(two.values[1] == Approx(1.0));
  CHECK(std::abs(two.vectors(0, 0)) == Approx(std::sqrt(0.5)));
  CHECK(two.vectors(0, 0) == Approx(two.vectors(0, 1)));
  CHECK(two.vectors(1, 0) == Approx(-two.vectors(1, 1)));
  // The path graph's Laplacian: 2 - 2 cos(pi k / n), k = 0 .. n - 1.
  constexpr std::int64_t n = 40;
  Matrix path{std::vector<double>(n * n), n, n};
  for (std::int64_t i = 0; i + 1 < n; ++i) {
    path(i, i) += 1;
    path(i + 1, i + 1) += 1;
    path(i, i + 1) = path(i + 1, i) = -1;
  }
  const report::Eigen eigen = report::eigen_symmetric(path);
  for (std::int64_t k = 0; k < n; ++k) {
    CHECK(eigen.values[static_cast<std::size_t>(n - 1 - k)] ==
          Approx(2 - 2 * std::cos(std::numbers::pi * static_cast<double>(k) / n)).epsilon(1e-12).scale(1));
    for (std::int64_t i = 0; i < n; ++i) {  // A v = lambda v
      double product = 0.0;
      for (std::int64_t j = 0; j < n; ++j) product += path(i, j) * eigen.vectors(k, j);
      CHECK(std::abs(product - eigen.values[static_cast<std::size_t>(k)] * eigen.vectors(k, i)) < 1e-12);
    }
  }
}

TEST_CASE("report: principal components") {
  // Variance 8 along (1, 1) / sqrt 2 and 2 along (1, -1) / sqrt 2, away from the origin.
  const Matrix table{{12, 12, 8, 8, 11, 9, 9, 11}, 4, 2};
  const report::Components components = report::principal_components(table);
  CHECK(components.variance_share[0] == Approx(0.8));
  CHECK(report::variance_share(components, 1) == Approx(0.8));
  CHECK(report::variance_share(components, 9) == Approx(1.0));
  CHECK(std::abs(components.scores(0, 0)) == Approx(2 * std::sqrt(2.0)));
  CHECK(std::abs(components.scores(2, 1)) == Approx(std::sqrt(2.0)));
  // A feature that is the first score, one that is the second, and one that is neither.
  CHECK(report::r2_on_components(components, {{5, 1, 3, 3}, 4, 1}, 1) == Approx(1.0));
  CHECK(report::r2_on_components(components, {{3, 3, 4, 2}, 4, 1}, 1) == Approx(0.0));
  CHECK(report::r2_on_components(components, {{3, 3, 4, 2}, 4, 1}, 2) == Approx(1.0));
  CHECK(report::r2_on_components(components, {{1, 1, -1, -1}, 4, 1}, 2) == Approx(0.0));
  // Wide tables go through the rows' Gram matrix; the answer is the same.
  const report::Components wide =
      report::principal_components({{12, 12, 0, 0, 0, 8, 8, 0, 0, 0, 11, 9, 0, 0, 0, 9, 11, 0, 0, 0}, 4, 5});
  CHECK(wide.variance_share[0] == Approx(0.8));
  CHECK(std::abs(wide.scores(0, 0)) == Approx(2 * std::sqrt(2.0)));
  CHECK(report::r2_on_components(wide, {{1, 1, -1, -1}, 4, 1}, 4) == Approx(0.0));
  const report::Components flat = report::principal_components({{1, 2, 1, 2, 1, 2}, 3, 2});
  CHECK(report::variance_share(flat, 2) == 0.0);
  CHECK(report::r2_on_components(flat, {{1, 2, 3}, 3, 1}, 2) == 0.0);
  CHECK_THROWS_AS(report::r2_on_components(flat, {{1, 2}, 2, 1}, 2), wengert::ShapeError);
}

TEST_CASE("report: correlations") {
  const std::vector<double> a{1, 2, 3, 4}, squares{1, 4, 9, 16}, down{4, 3, 2, 1}, ties{1, 1, 2, 2}, flat{5, 5, 5, 5};
  CHECK(report::pearson(a, down) == Approx(-1.0));
  CHECK(report::pearson(a, flat) == 0.0);
  CHECK(report::spearman(a, squares) == Approx(1.0));
  CHECK(report::spearman(a, ties) == Approx(2 / std::sqrt(5.0)));  // ranks 1.5 1.5 3.5 3.5
  CHECK(report::cosine(std::vector<double>{1, 0}, std::vector<double>{1, 1}) == Approx(std::sqrt(0.5)));
  const Matrix target{{1, 10, 2, 20, 3, 30, 4, 40}, 4, 2}, means{{2.5, 25, 2.5, 25, 2.5, 25, 2.5, 25}, 4, 2};
  CHECK(report::r2(target, target) == 1.0);
  CHECK(report::r2(means, target) == Approx(0.0));
  CHECK(report::r2({{1, 2, 3, 3}, 4, 1}, {{1, 2, 3, 4}, 4, 1}) == Approx(0.8));
  CHECK_THROWS_AS(report::r2(means, {{1, 2}, 2, 1}), wengert::ShapeError);
  CHECK(report::mean_step({{0, 0, 5, 5, 2, 4}, 3, 2}) == std::vector<double>{1, 2});
  CHECK_THROWS_AS(report::pearson(a, std::vector<double>{1}), wengert::ShapeError);
}

TEST_CASE("report: a matrix from a tensor") {
  const Matrix matrix = report::to_matrix(wengert::tensor<float>({{1, 2, 3}, {4, 5, 6}}));
  CHECK(matrix.rows == 2);
  CHECK(matrix(1, 0) == 4.0);
  CHECK(report::transpose(matrix).values == std::vector<double>{1, 4, 2, 5, 3, 6});
  CHECK_THROWS_AS(report::to_matrix(wengert::tensor<float>({1, 2})), wengert::ShapeError);
}

TEST_CASE("report: CSV") {
  report::Csv csv({"step", "loss, mean", "say \"x\""});
  csv.row({1, 0.1, 1e-300}).row({2, missing_value, -0.0});
  CHECK(csv.text() == "step,\"loss, mean\",\"say \"\"x\"\"\"\n1,0.1,1e-300\n2,,-0\n");
  CHECK_THROWS_AS(csv.row({1, 2}), wengert::ShapeError);
  const TemporaryFolder folder;
  csv.save(folder.file("curve.csv"));
  CHECK(read_bytes(folder.file("curve.csv")) == csv.text());
  CHECK(folder.count() == 1);
  const std::string missing = folder.file("none/curve.csv");
  CHECK_THROWS_WITH_AS(csv.save(missing), ("Csv: cannot write \"" + missing + "\": No such file or directory").c_str(),
                       wengert::IoError);
}

TEST_CASE("report: a figure becomes a PNG, beside and renamed") {
  const TemporaryFolder folder;
  report::Figure figure("Two tables", 2);
  figure
      .add(report::Heatmap{.title = "before",
                           .values = {{1, -1, missing_value, 0.5}, 2, 2},
                           .x_label = "x",
                           .y_label = "y",
                           .scale = "t"})
      .add(report::Heatmap{.title = "after", .values = {{4, 3, 2, 1}, 2, 2}, .colour_label = "value", .scale = "t"})
      .add(report::Lines{.title = "loss", .curves = {{"a", {1, 2, 3}, {3, missing_value, 1}}, {"b", {1}, {2}}}});
  const std::string path = folder.file("figure.png");
  figure.save_png(path);
  figure.save_png(path);
  CHECK(folder.count() == 1);
  const std::string png = read_bytes(path);
  REQUIRE(png.size() > 2000);
  CHECK(png.substr(0, 8) == "\x89PNG\r\n\x1a\n");
  CHECK(big_endian(png, 16) > 800);  // width and height in the header chunk
  CHECK(big_endian(png, 20) > 800);
  CHECK(png.find("IEND") != std::string::npos);

  const std::string folder_name = folder.path.string();
  CHECK_THROWS_AS(figure.save_png(folder_name), wengert::IoError);  // a folder is in the way
  CHECK(folder.count() == 1);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path.parent_path()))
    CHECK_FALSE(entry.path().string().starts_with(folder_name + "."));
  CHECK_THROWS_AS(figure.add(report::Heatmap{.title = "none"}), wengert::ShapeError);
  CHECK_THROWS_AS(figure.add(report::Lines{.curves = {{"a", {1, 2}, {1}}}}), wengert::ShapeError);
  CHECK_NOTHROW(report::Figure("nothing in it").save_png(path));
}

TEST_CASE("report: progress where there is no terminal") {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  {
    report::Progress progress("quiet", 3, {.stream = file});
    for (std::int64_t step = 1; step <= 3; ++step) progress.update(step, 0.5 / static_cast<double>(step));
  }
  {
    report::Progress progress("often", 2, {.plain_interval = 0.0, .stream = file});
    progress.update(1, 4.25);
    progress.update(2, wengert::full({}, 1.5));
  }
  {
    report::Progress progress("stopped", 1000, {.stream = file});
    progress.update(1, 1.0);
  }
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.starts_with("quiet  3/3  loss 0.1667  "));
  CHECK(text.find("\noften  1/2  loss 4.2500  ") != std::string::npos);
  CHECK(text.find(" left\noften  2/2  loss 1.5000  ") != std::string::npos);
  CHECK(text.find(" steps/s  in 0:01\n") != std::string::npos);
}

TEST_CASE("report: progress on a terminal redraws one line") {
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) {
    MESSAGE("no pseudo-terminal on this machine");
    return;
  }
  const winsize size{.ws_row = 24, .ws_col = 90, .ws_xpixel = 0, .ws_ypixel = 0};
  std::FILE* terminal = std::fopen(ptsname(master), "w");
  REQUIRE(terminal != nullptr);
  REQUIRE(ioctl(fileno(terminal), TIOCSWINSZ, &size) == 0);
  constexpr std::int64_t total = 3000;
  const auto start = std::chrono::steady_clock::now();
  {
    report::Progress progress("landing", total, {.stream = terminal});
    for (std::int64_t step = 1; step <= total; ++step) {
      if (step % 10 == 0) usleep(1000);
      progress.update(step, 0.25);
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::fclose(terminal);
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = ::read(master, buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  close(master);
  const auto redrawn = std::count(text.begin(), text.end(), '\r') - 1;  // one is the line end's
  CHECK(redrawn >= 2);                                                  // at 0.1 s and at the end
  CHECK(static_cast<double>(redrawn) <= 10 * seconds.count() + 1);
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  const std::string last = text.substr(text.rfind("\rlanding") + 1);
  CHECK(last.starts_with("landing  [=================="));
  CHECK(last.find("==]  3000/3000  loss 0.2500  ") != std::string::npos);
  CHECK(last.find('\x1b') < 90);
}

TEST_CASE("write_file replaces files, keeps links, and writes into pipes") {
  const std::string folder = std::filesystem::temp_directory_path() / ("wengert-files-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const auto content = [](const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string target = folder + "/target", link = folder + "/link", pipe = folder + "/pipe";
  std::filesystem::create_symlink("target", link);
  wengert::report::write_file("test", link, "one");
  CHECK(std::filesystem::is_symlink(link));
  CHECK(content(target) == "one");
  wengert::report::write_file("test", link, "two");
  CHECK(std::filesystem::is_symlink(link));
  CHECK(content(target) == "two");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  std::string got;
  std::thread reader([&] { got = content(pipe); });
  wengert::report::write_file("test", pipe, "three");
  reader.join();
  CHECK(got == "three");
  CHECK(std::filesystem::is_fifo(pipe));
  std::filesystem::remove_all(folder);
}
