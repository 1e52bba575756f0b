#include "parity_tools.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "wengert/gradient.hpp"
#include "wengert/io.hpp"
#include "wengert/ops.hpp"
#include "wengert/tape.hpp"

namespace parity {

std::vector<DType> types() {
  std::vector<DType> all{DType::float32};
  try {
    current_backend().kernels(DType::float64);
    all.push_back(DType::float64);
  } catch (const DTypeError&) {
  }
  return all;
}

Tensor here(const Tensor& x, DType dtype) {
  return (is_floating(x.dtype()) ? x.to(dtype) : x).to(current_backend()).clone();
}

NamedTensors read(const std::string& file) {
  const BackendScope use("reference");  // not every backend has float64
  return io::load_safetensors(std::string(WENGERT_PARITY_DATA) + "/" + file + ".safetensors");
}

bool Fixture::has(const char* word) const { return std::find(words.begin(), words.end(), word) != words.end(); }

const Tensor& Fixture::at(const std::string& key) const {
  used.insert(key);
  return tensors.at(key);
}

Inputs Fixture::inputs(DType dtype) const {
  Inputs all;
  for (std::size_t i = 0;; ++i) {
    const std::string key = fmt::format("in{}", i);
    if (!tensors.contains(key)) return all;
    all.push_back(here(at(key), dtype));
    if (is_floating(all.back().dtype())) all.back().set_requires_grad();
  }
}

NamedTensors Fixture::part(const std::string& prefix, DType dtype) const {
  NamedTensors all;
  for (const auto& [key, tensor] : tensors)
    if (key.starts_with(prefix)) all.push_back({key.substr(prefix.size()), here(at(key), dtype)});
  return all;
}

double forward_tolerance(DType dtype) { return dtype == DType::float32 ? 1e-5 : 1e-12; }
double gradient_tolerance(DType dtype) { return dtype == DType::float32 ? 1e-4 : 1e-12; }

Cases::Cases(const std::string& file, const char* what) : what_(what) {
  std::map<std::string, Fixture> cases;
  for (const NamedTensor& entry : read(file)) {
    const std::size_t slash = entry.name.find('/');
    Fixture& fixture = cases[entry.name.substr(0, slash)];
    fixture.tensors[entry.name.substr(slash + 1)] = entry.tensor;
  }
  for (auto& [name, fixture] : cases) {
    fixture.name = name;
    std::istringstream text(name);
    for (std::string word; text >> word;) fixture.words.push_back(word);
    fixtures_.push_back(std::move(fixture));
  }
}

void Cases::finish() const {
  std::set<std::string> kinds;
  for (const Fixture& fixture : fixtures_) {
    kinds.insert(fixture.words[0]);
    for (const auto& entry : fixture.tensors)
      CHECK_MESSAGE(fixture.used.contains(entry.first), fixture.name, "/", entry.first);
  }
  std::string text =
      fmt::format("parity: {} {} in {} cases on {}", kinds.size(), what_, fixtures_.size(), current_backend().name());
  for (const auto& [dtype, tally] : values_) {
    text += fmt::format("; {}: {} values within {:.1e}, allowed {:g}", name_of(dtype), tally.count, tally.worst,
                        forward_tolerance(dtype));
    if (const auto slopes = gradients_.find(dtype); slopes != gradients_.end())
      text += fmt::format(", {} gradients within {:.1e}, allowed {:g}", slopes->second.count, slopes->second.worst,
                          gradient_tolerance(dtype));
  }
  MESSAGE(text);
}

void Cases::hold(Tallies& tallies, const Tensor& got, const Tensor& wanted, double tolerance) {
  REQUIRE(got.shape() == wanted.shape());
  const auto a = got.to_vector<double>(), b = wanted.to_vector<double>();
  double squares = 0, largest = 0;
  for (const double x : b) squares += x * x / static_cast<double>(b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double gap = a[i] == b[i] ? 0 : std::abs(a[i] - b[i]) / (std::abs(b[i]) + std::sqrt(squares));
    largest = std::isnan(largest) || gap <= largest ? largest : gap;
  }
  CHECK(largest <= tolerance);
  Tally& tally = tallies[got.dtype()];
  ++tally.count;
  tally.worst = std::isnan(largest) ? largest : std::max(largest, tally.worst);
}

void Cases::compare(const Fixture& fixture, DType dtype, const std::function<Tensor(const Inputs&)>& run,
                    const layers::Module* module) {
  CAPTURE(fixture.name);
  CAPTURE(std::string(name_of(dtype)));
  const Inputs inputs = fixture.inputs(dtype);
  Tape tape;
  const Tensor out = run(inputs);
  const Tensor& wanted = fixture.at("out");
  if (!is_floating(wanted.dtype())) {
    CHECK(out.to_vector<std::int64_t>() == wanted.to_vector<std::int64_t>());
    return;
  }
  value(out, wanted);
  tape.backward(out, {.seed = here(fixture.at("upstream"), dtype)});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!fixture.tensors.contains(fmt::format("grad{}", i))) continue;
    CAPTURE(i);
    gradient(inputs[i].grad(), fixture.at(fmt::format("grad{}", i)));
  }
  if (!module) return;
  for (const NamedTensor& entry : fixture.part("weight_grad/", dtype)) {
    CAPTURE(entry.name);
    const Tensor grad = find(module->named_parameters(), entry.name).grad();
    REQUIRE(grad.defined());
    gradient(grad, entry.tensor);
  }
}

}  // namespace parity
