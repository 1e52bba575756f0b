#include "safetensors_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "wengert/error.hpp"

namespace wengert::io::detail {

const StoredType* stored_type(std::string_view name) {
  static constexpr StoredType types[] = {
      {"F32", 32, DType::float32},
      {"F64", 64, DType::float64},
      {"I32", 32, DType::int32},
      {"I64", 64, DType::int64},
      {"F16", 16, DType::float32},
      {"BF16", 16, DType::float32},
      {"BOOL", 8, {}},
      {"I8", 8, {}},
      {"U8", 8, {}},
      {"I16", 16, {}},
      {"U16", 16, {}},
      {"U32", 32, {}},
      {"U64", 64, {}},
      {"C64", 64, {}},
      {"F8_E4M3", 8, {}},
      {"F8_E5M2", 8, {}},
      {"F8_E8M0", 8, {}},
      {"F8_E4M3FNUZ", 8, {}},
      {"F8_E5M2FNUZ", 8, {}},
      {"F6_E2M3", 6, {}},
      {"F6_E3M2", 6, {}},
      {"F4", 4, {}},
  };
  const auto* found = std::find_if(std::begin(types), std::end(types), [&](const auto& t) { return t.name == name; });
  return found == std::end(types) ? nullptr : found;
}

std::string name_problem(std::string_view name) {
  if (name == metadata_name) return "no tensor may be called \"__metadata__\"";
  if (name.find('\0') != std::string_view::npos)
    return fmt::format("the name of tensor {} holds a NUL character", in_quotes(name));
  return {};
}

namespace {

using nlohmann::json;

struct Entry {
  std::string name, dtype{};
  std::vector<std::uint64_t> shape{}, offsets{};
};

// Follows the events of the JSON parser. What the format does not allow ends the parse at once, so that a header
// neither nests deeper nor builds more than a good one of its length.
class Reader final : public nlohmann::json_sax<json> {
 public:
  explicit Reader(const InputFile& file) : file_(file) {}
  std::vector<Entry> entries;
  Metadata metadata;

  bool null() override {
    if (place_ == Place::entries && name_ == metadata_name) return true;  // as good as none
    wrong();
  }
  bool boolean(bool /*value*/) override { wrong(); }
  bool number_integer(number_integer_t /*value*/) override { wrong(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { wrong(); }
  bool binary(binary_t& /*value*/) override { wrong(); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::list) wrong();
    std::vector<std::uint64_t>& list = field_ == "shape" ? entries.back().shape : entries.back().offsets;
    const auto most = field_ == "shape" ? static_cast<std::size_t>(Shape::max_rank) : 2U;
    if (list.size() == most) {
      if (field_ == "shape") fail(fmt::format("has more than {} axes, the most that a Tensor can have", most));
      wrong();
    }
    list.push_back(value);
    return true;
  }
  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      metadata.push_back({name_, std::move(value)});
    } else if (place_ == Place::entry && field_ == "dtype") {
      entries.back().dtype = std::move(value);
    } else {
      wrong();
    }
    return true;
  }

  bool start_object(std::size_t /*elements*/) override {
    switch (place_) {
      case Place::outside: place_ = Place::entries; return true;
      case Place::entries:
        if (name_ == metadata_name) {
          place_ = Place::metadata;
        } else {
          place_ = Place::entry;
          entries.push_back({.name = name_});
        }
        fields_.clear();
        return true;
      default: wrong();
    }
  }
  bool end_object() override {
    if (place_ == Place::entry)
      for (const char* field : {"dtype", "shape", "data_offsets"})
        if (!fields_.contains(field)) fail(fmt::format("has no {}", field));
    if (place_ == Place::metadata) name_ = metadata_name;
    place_ = place_ == Place::entries ? Place::outside : Place::entries;
    return true;
  }
  bool start_array(std::size_t /*elements*/) override {
    if (place_ != Place::entry || field_ == "dtype") wrong();
    place_ = Place::list;
    return true;
  }
  bool end_array() override {
    if (field_ == "data_offsets" && entries.back().offsets.size() != 2) wrong();
    place_ = Place::entry;
    return true;
  }

  bool key(string_t& key) override {
    switch (place_) {
      case Place::entries:
        if (const std::string problem = name_problem(key); key != metadata_name && !problem.empty())
          file_.fail(problem);
        if (!names_.insert(key).second) file_.fail(fmt::format("duplicate key {}", in_quotes(key)));
        name_ = std::move(key);
        break;
      case Place::metadata:
        if (!fields_.insert(key).second) file_.fail(fmt::format("duplicate key {} in __metadata__", in_quotes(key)));
        name_ = std::move(key);
        break;
      default:
        if (key != "dtype" && key != "shape" && key != "data_offsets")
          fail(fmt::format("has the unknown key {}", in_quotes(key)));
        if (!fields_.insert(key).second) fail(fmt::format("duplicate key {}", in_quotes(key)));
        field_ = std::move(key);
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/, const json::exception& error) override {
    // "[json.exception...] parse error at ...: syntax error while parsing ... - reason; last read: ..."
    std::string_view reason = error.what();
    if (const auto dash = reason.find(" - "); dash != std::string_view::npos) reason.remove_prefix(dash + 3);
    reason = reason.substr(0, reason.find("; last read"));
    file_.fail(fmt::format("the header is not JSON at its byte {}: {}", position, reason));
  }

 private:
  enum class Place : std::uint8_t { outside, entries, metadata, entry, list };

  [[noreturn]] void fail(std::string_view reason) const {
    file_.fail(fmt::format("tensor {} {}", in_quotes(name_), reason));
  }
  // A value of a kind that may not stand here.
  [[noreturn]] void wrong() const {
    switch (place_) {
      case Place::outside: file_.fail("the header is not a JSON object");
      case Place::metadata: file_.fail(fmt::format("__metadata__: the value of {} is not a string", in_quotes(name_)));
      case Place::entries:
        if (name_ == metadata_name) file_.fail("__metadata__ is not an object of strings");
        fail("is not an object of dtype, shape and data_offsets");
      default:
        if (field_ == "dtype") fail("has a dtype that is not a string");
        if (field_ == "shape") fail("has a shape that is not a list of unsigned integers");
        fail("has data_offsets that are not two unsigned integers");
    }
  }

  const InputFile& file_;
  Place place_ = Place::outside;
  std::string name_, field_;
  std::unordered_set<std::string> names_, fields_;
};

// What one entry says, once it agrees with itself.
TensorInfo checked(const InputFile& file, Entry& entry) {
  const auto fail = [&](std::string_view reason) {
    file.fail(fmt::format("tensor {} {}", in_quotes(entry.name), reason));
  };
  const StoredType* type = stored_type(entry.dtype);
  if (!type) fail(fmt::format("has the unknown dtype {}", in_quotes(entry.dtype)));

  constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
  std::uint64_t count = 1;
  bool empty = false;
  std::vector<std::int64_t> extents;
  for (const std::uint64_t extent : entry.shape) {
    empty |= extent == 0;
    if (extent > most || (extent > 0 && (__builtin_mul_overflow(count, extent, &count) || count > most)))
      fail("has a shape of more than 2^63 - 1 elements");
    extents.push_back(static_cast<std::int64_t>(extent));
  }
  if (empty) count = 0;
  const Shape shape{std::span<const std::int64_t>(extents)};

  const std::uint64_t begin = entry.offsets[0], end = entry.offsets[1];
  if (begin > end) fail(fmt::format("begins at {}, behind its end at {}", begin, end));
  if (end > most) fail(fmt::format("ends at {}, above 2^63 - 1", end));
  std::uint64_t bits = 0;
  if (__builtin_mul_overflow(count, type->bits, &bits)) fail("has a shape of more than 2^64 - 1 bits");
  if (bits % 8 != 0) fail(fmt::format("has {} values of {} bits: no whole number of bytes", count, type->bits));
  if (bits / 8 != end - begin)
    fail(fmt::format("has {} bytes between its data_offsets, but {} {} takes {}", end - begin, entry.dtype, shape.str(),
                     bits / 8));
  return {std::move(entry.name), std::move(entry.dtype), shape, static_cast<std::int64_t>(begin),
          static_cast<std::int64_t>(end)};
}

// The tensors, in the order of their values, cover the file without hole, overlap or rest.
void check_coverage(const InputFile& file, std::vector<TensorInfo>& tensors, std::uint64_t data_bytes) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::int64_t end = 0;
  const TensorInfo* before = nullptr;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.begin < end)
      file.fail(fmt::format("tensor {} overlaps tensor {}", in_quotes(tensor.name), in_quotes(before->name)));
    if (tensor.begin > end)
      file.fail(fmt::format("a hole: {} bytes in front of tensor {} belong to no tensor", tensor.begin - end,
                            in_quotes(tensor.name)));
    end = tensor.end;
    before = &tensor;
  }
  const auto needed = static_cast<std::uint64_t>(end);
  if (needed > data_bytes)
    file.fail(
        fmt::format("file shorter than header says: need {}, have {}", file.size() - data_bytes + needed, file.size()));
  if (needed < data_bytes)
    file.fail(fmt::format("{} bytes behind the last tensor belong to no tensor", data_bytes - needed));
}

// Metadata {"head.weight": "embed.weight"}, where the second is a tensor and the first is none, tie the two names.
void tie(Header& header) {
  const auto by_name = [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; };
  std::vector<TensorInfo>& tensors = header.tensors;
  std::sort(tensors.begin(), tensors.end(), by_name);
  const auto tensor = [&](const std::string& name) {
    const auto found = std::lower_bound(tensors.begin(), tensors.end(), TensorInfo{.name = name}, by_name);
    return found != tensors.end() && found->name == name ? &*found : nullptr;
  };
  std::vector<TensorInfo> tied;
  std::erase_if(header.metadata, [&](const MetadataEntry& entry) {
    const TensorInfo* source = tensor(entry.value);
    if (!source || tensor(entry.key) || !name_problem(entry.key).empty()) return false;
    tied.push_back(*source);
    tied.back().name = entry.key;
    tied.back().tied_to = entry.value;
    return true;
  });
  tensors.insert(tensors.end(), std::make_move_iterator(tied.begin()), std::make_move_iterator(tied.end()));
  std::sort(tensors.begin(), tensors.end(), by_name);
}

}  // namespace

Header parse_header(const InputFile& file, std::string_view text, std::uint64_t data_bytes) {
  if (!text.starts_with('{')) file.fail("the header does not begin with '{'");
  Reader reader(file);
  json::sax_parse(text, &reader);
  Header header;
  for (Entry& entry : reader.entries) header.tensors.push_back(checked(file, entry));
  check_coverage(file, header.tensors, data_bytes);
  header.metadata = std::move(reader.metadata);
  tie(header);
  return header;
}

}  // namespace wengert::io::detail
