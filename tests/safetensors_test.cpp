/// safetensors files: what is written comes back, also by way of Python's packages.

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "file_tools.hpp"
#include "same_bits.hpp"
#include "tensor_tools.hpp"
#include "wengert/io.hpp"
#include "wengert/layers.hpp"
#include "wengert/ops.hpp"
#include "wengert/optim.hpp"
#include "wengert/tape.hpp"

using namespace wengert;
using namespace wengert::testing;
using io::load_safetensors;
using io::SafetensorsFile;
using io::save_safetensors;

TEST_CASE("safetensors: what is written comes back, from and to every backend") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.safetensors");
  const NamedTensors saved{
      {"z.weight", tensor(special_values<float>(35, 1), {5, 7})},
      {"double", tensor(special_values<double>(3, 2), {3, 1})},
      {"ids", tensor<std::int64_t>({{1, INT64_MIN}, {INT64_MAX, 0}})},
      {"int", tensor<std::int32_t>({-1, INT32_MIN, INT32_MAX})},
      {"scalar", tensor(std::vector<float>{2.5F}, Shape())},
      {"nothing", zeros({0, 4})},
      {"deep", ones({1, 1, 2, 1, 1, 1, 1, 2})},
      {"", ones({1})},
      {"n\xC3\xA4m\"e\\\n\t\x7F", ones({2})},
  };
  const io::Metadata metadata{{"z", "1"}, {"a\n", "\xE2\x82\xAC \"quoted\""}, {"", ""}};
  save_safetensors(saved, path, {.metadata = metadata});
  CHECK(folder.count() == 1);
  for (const std::string& name : backend_names()) {
    if (!backend_available(name)) continue;
    CAPTURE(name);
    const NamedTensors loaded = load_safetensors(path, backend(name));
    REQUIRE(loaded.size() == saved.size());
    CHECK(std::is_sorted(loaded.begin(), loaded.end(), [](const auto& a, const auto& b) { return a.name < b.name; }));
    for (const NamedTensor& entry : saved) {
      const Tensor tensor = find(loaded, entry.name);
      REQUIRE(tensor.defined());
      CHECK(tensor.backend().name() == name);
      CHECK(tensor.dtype() == entry.tensor.dtype());
      CHECK(tensor.shape() == entry.tensor.shape());
      CHECK(!tensor.requires_grad());
      if (is_floating(tensor.dtype()))
        CHECK_SAME_BITS(tensor.to_vector<double>(), entry.tensor.to_vector<double>());
      else
        CHECK(tensor.to_vector<std::int64_t>() == entry.tensor.to_vector<std::int64_t>());
    }
  }
  const SafetensorsFile file(path);
  REQUIRE(file.metadata().size() == 3);
  for (const io::MetadataEntry& entry : metadata) CHECK(io::find(file.metadata(), entry.key) == entry.value);
  CHECK(!io::find(file.metadata(), "b").has_value());

  // The same tensors give the same bytes, in whatever order they are listed.
  NamedTensors reversed(saved.rbegin(), saved.rend());
  const std::string again = folder.file("again.safetensors");
  save_safetensors(reversed, again, {.metadata = {metadata[2], metadata[1], metadata[0]}});
  CHECK(read_bytes(path) == read_bytes(again));
}

TEST_CASE("safetensors: a layer's state dict, saved and loaded") {
  const TemporaryFolder folder;
  const std::string path = folder.file("embed.safetensors");
  const layers::TransformerEmbedding::Options options{.vocab_size = 11, .max_seq_len = 5, .embed_dim = 3};
  layers::TransformerEmbedding embed(options), other(options);
  save_safetensors(embed.state_dict(), path);
  CHECK(values_of(other.token_embed.weight) != values_of(embed.token_embed.weight));
  other.load_state_dict(load_safetensors(path));
  CHECK(values_of(other.token_embed.weight) == values_of(embed.token_embed.weight));
  CHECK(values_of(other.pos_embed.weight) == values_of(embed.pos_embed.weight));
  CHECK(names_of(load_safetensors(path)) == Names{"pos_embed.weight", "token_embed.weight"});
}

TEST_CASE("safetensors: the header without the values, and one tensor alone") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.safetensors");
  save_safetensors({{"b", full({100, 10}, 2.0)}, {"a", tensor<std::int64_t>({3, 4})}}, path,
                   {.metadata = {{"k", "v"}}});
  const SafetensorsFile file(path);
  REQUIRE(file.tensors().size() == 2);
  const io::TensorInfo& info = file.tensors()[1];
  CHECK(info.name == "b");
  CHECK(info.dtype == "F32");
  CHECK(info.shape == Shape{100, 10});
  CHECK(info.begin == 16);  // the wider type comes first
  CHECK(info.end == 16 + 4000);
  CHECK(info.tied_to.empty());
  CHECK(values_of(file.read("a")) == Values{3, 4});
  CHECK(values_of(file.read("b")) == Values(1000, 2.0));
  CHECK(error_of([&] { (void)file.read("c"); }) ==
        "safetensors: cannot read \"" + path + "\": there is no tensor \"c\"");
  // An open file stays what it was when its name is given to another.
  save_safetensors({{"b", ones({1})}}, path);
  CHECK(values_of(file.read("b")) == Values(1000, 2.0));
}

TEST_CASE("safetensors: what Python's package wrote") {
  const NamedTensors all = load_safetensors(data_file("python.safetensors"));
  CHECK(all.size() == 8);
  const auto check = [&](const char* name, DType dtype, const Shape& shape, const Values& values) {
    CAPTURE(name);
    const Tensor tensor = find(all, name);
    REQUIRE(tensor.defined());
    CHECK(tensor.dtype() == dtype);
    CHECK(tensor.shape() == shape);
    CHECK_SAME_BITS(values_of(tensor), values);
  };
  const double inf = std::numeric_limits<double>::infinity();
  check("f32", DType::float32, {2, 3}, {1, -2.5, static_cast<double>(3e-40F), inf, -0.0, 6});
  check("f64", DType::float64, {3}, {0.1, -1e300, 5e-324});
  check("i32", DType::int32, {}, {-7});
  check("empty", DType::int64, {0, 4}, {});
  check("f16", DType::float32, {6}, {1, 65504, 0x1p-24, -0.0, -inf, 0.333251953125});
  check("bf16", DType::float32, {2, 2}, {1.0078125, inf, 0x1p-133, -123.5});
  check("n\xC3\xA4m\"e\n", DType::float32, {1}, {42});
  CHECK(find(all, "i64").to_vector<std::int64_t>() == std::vector<std::int64_t>{std::int64_t{1} << 62, -1});
  const SafetensorsFile file(data_file("python.safetensors"));
  CHECK(io::find(file.metadata(),
                 "Gr\xC3\xBC\xC3\x9F"
                 "e") == "an\nalle");
  CHECK(io::find(file.metadata(), "format") == "np");
}

TEST_CASE("safetensors: a type that no tensor can hold is an error only when it is asked for") {
  const SafetensorsFile file(data_file("python_bytes.safetensors"));
  CHECK(file.tensors().size() == 3);
  CHECK(file.tensors()[2].dtype == "U8");
  CHECK(values_of(file.read("f32"))[1] == -2.5);
  CHECK_THROWS_WITH_AS((void)file.read("u8"),
                       "safetensors: tensor \"u8\" is U8, which no Tensor can hold; read the others one by one",
                       DTypeError);
  CHECK_THROWS_WITH_AS((void)load_safetensors(data_file("python_bytes.safetensors")),
                       "safetensors: tensor \"bool\" is BOOL, which no Tensor can hold; read the others one by one",
                       DTypeError);
}

TEST_CASE("SER-03: values at odd addresses of the file") {
  const TemporaryFolder folder;
  const std::string path = folder.file("odd.safetensors");
  const std::string f32 = little_endian(0x3FC00000, 4) + little_endian(0xC0200000, 4),
                    bf16 = little_endian(0x40203F80, 4);
  const std::string f64 = little_endian(0x3FF8000000000000, 8);
  for (std::size_t padding = 0; padding < 9; ++padding) {
    const std::string header = "{" + entry("u", "U8", "[3]", "[0,3]") + "," + entry("f", "F32", "[2]", "[3,11]") + "," +
                               entry("h", "BF16", "[2]", "[11,15]") + "," + entry("d", "F64", "[1]", "[15,23]") + "}" +
                               std::string(padding, ' ');
    write_bytes(path, with_header(header, "uvw" + f32 + bf16 + f64));
    const SafetensorsFile file(path);
    CHECK(values_of(file.read("f")) == Values{1.5, -2.5});
    CHECK(values_of(file.read("h")) == Values{1, 2.5});
    CHECK(values_of(file.read("d")) == Values{1.5});
    CHECK(values_of(file.read("f") + file.read("h")) == Values{2.5, 0});  // through the backend's kernels
  }
  // What we write is aligned, whatever the sizes.
  for (std::size_t length = 1; length < 9; ++length) {
    save_safetensors(
        {{std::string(length, 'n'), ones({3})}, {"d", ones({1}, DType::float64)}, {"i", ones({5}, DType::int32)}},
        path);
    const std::string bytes = read_bytes(path);
    CHECK(static_cast<unsigned char>(bytes[0]) % 8 == 0);
    const SafetensorsFile file(path);
    for (const io::TensorInfo& info : file.tensors()) CHECK(info.begin % (info.dtype == "F64" ? 8 : 4) == 0);
  }
}

TEST_CASE("SER-05: views are written as the values they stand for") {
  const TemporaryFolder folder;
  const std::string path = folder.file("views.safetensors");
  const Tensor w = tensor<float>({{1, 2, 3}, {4, 5, 6}});
  save_safetensors({{"w", w},
                    {"transposed", transpose(w, 0, 1)},
                    {"column", slice(w, 1, 1, 2)},
                    {"flat", reshape(w, {6})},
                    {"row", broadcast_to(tensor<float>({7, 8}), {3, 2})}},
                   path);
  const NamedTensors loaded = load_safetensors(path);
  CHECK(values_of(find(loaded, "w")) == Values{1, 2, 3, 4, 5, 6});
  CHECK(values_of(find(loaded, "transposed")) == Values{1, 4, 2, 5, 3, 6});
  CHECK(find(loaded, "transposed").shape() == Shape{3, 2});
  CHECK(values_of(find(loaded, "column")) == Values{2, 5});
  CHECK(values_of(find(loaded, "flat")) == Values{1, 2, 3, 4, 5, 6});
  CHECK(find(loaded, "flat").shape() == Shape{6});
  CHECK(values_of(find(loaded, "row")) == Values{7, 8, 7, 8, 7, 8});
}

TEST_CASE("SER-05: tied weights are written once and come back tied") {
  const TemporaryFolder folder;
  const std::string path = folder.file("tied.safetensors");
  struct Model : layers::Module {
    layers::Embedding embed{{.num_embeddings = 6, .embedding_dim = 4}};
    layers::Linear head{{.in_features = 4, .out_features = 6, .bias = false}};
    Model() {
      head.weight = embed.weight;
      register_module("embed", embed);
      register_module("head", head);
    }
  };
  Model model, other;
  save_safetensors(model.state_dict(), path, {.metadata = {{"format", "pt"}}});
  const SafetensorsFile file(path);
  REQUIRE(file.tensors().size() == 2);
  CHECK(file.tensors()[0].tied_to.empty());
  CHECK(file.tensors()[1].name == "head.weight");
  CHECK(file.tensors()[1].tied_to == "embed.weight");
  CHECK(values_of(file.read("head.weight")) == values_of(model.embed.weight));
  CHECK(file.metadata().size() == 1);
  CHECK(read_bytes(path).find(R"({"__metadata__":{"format":"pt","head.weight":"embed.weight"},"embed.weight":{)") == 8);
  CHECK(read_bytes(path).size() < 8 + 200 + 6 * 4 * 4);

  const NamedTensors loaded = load_safetensors(path);
  CHECK(names_of(loaded) == Names{"embed.weight", "head.weight"});
  CHECK(&loaded[0].tensor.storage() == &loaded[1].tensor.storage());
  // What was loaded is written as it was.
  const std::string again = folder.file("again.safetensors");
  save_safetensors(loaded, again, {.metadata = file.metadata()});
  CHECK(read_bytes(again) == read_bytes(path));

  other.load_state_dict(loaded);
  CHECK(other.head.weight.is(other.embed.weight));
  const Tensor ids = tensor<std::int64_t>({1, 3, 3});
  for (Model* trained : {&model, &other}) {
    optim::SGD optimizer(trained->named_parameters(), {.lr = 0.5});
    Tape tape;
    tape.backward(mean(square(trained->head(trained->embed(ids)))));
    optimizer.step();
  }
  CHECK(values_of(other.embed.weight) == values_of(model.embed.weight));
  CHECK(values_of(other.head.weight) == values_of(other.embed.weight));
}

TEST_CASE("SER-05: tied weights as PyTorch's users write them") {
  const NamedTensors loaded = load_safetensors(data_file("torch_tied.safetensors"));
  CHECK(names_of(loaded) == Names{"embed.weight", "head.weight"});
  CHECK(values_of(loaded[0].tensor) == Values{0, 1, 2, 3, 4, 5});
  CHECK(&loaded[0].tensor.storage() == &loaded[1].tensor.storage());
}
