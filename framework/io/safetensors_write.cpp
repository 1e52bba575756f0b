#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "../core/replacement.hpp"
#include "half.hpp"
#include "safetensors_header.hpp"
#include "wengert/error.hpp"

namespace wengert::io {

namespace {

// One tensor on its way into a file.
struct Item {
  const NamedTensor* entry;
  std::string_view dtype;
  std::uint64_t bits, bytes;
};

std::string_view stored_name(DType dtype, std::optional<Half> half) {
  if (half && is_floating(dtype)) return *half == Half::float16 ? "F16" : "BF16";
  switch (dtype) {
    case DType::float32: return "F32";
    case DType::float64: return "F64";
    case DType::int32: return "I32";
    case DType::int64: return "I64";
  }
  return {};
}

class Writer {
 public:
  Writer(const NamedTensors& tensors, const std::string& path, const SaveOptions& options)
      : path_(path), half_(options.dtype), metadata_(options.metadata) {
    plan(tensors);
    check_metadata(options.metadata);
    write_header();
  }

  void save() {
    wengert::detail::Replacement file("safetensors", path_);
    const std::uint64_t length = header_.size();
    file.write(&length, sizeof(length));
    file.write(header_);
    for (const Item& item : items_) {
      const detail::HostValues values(item.entry->tensor);
      if (item.bits != 16)
        file.write(values.data(), values.bytes());
      else if (item.entry->tensor.dtype() == DType::float32)
        write_halves(file, static_cast<const float*>(values.data()), item.entry->tensor.numel());
      else
        write_halves(file, static_cast<const double*>(values.data()), item.entry->tensor.numel());
    }
    file.commit();
  }

 private:
  [[noreturn]] void fail(std::string_view reason) const {
    throw IoError(fmt::format("safetensors: cannot write \"{}\": {}", path_, reason));
  }

  std::string json_string(const std::string& text) const {
    try {
      return nlohmann::json(text).dump();
    } catch (const nlohmann::json::exception&) {
      fail(fmt::format("{} is not UTF-8", detail::in_quotes(text)));
    }
  }

  // What is written, in which order, and which names are tied.
  void plan(const NamedTensors& tensors) {
    std::vector<const NamedTensor*> sorted;
    for (const NamedTensor& entry : tensors) {
      if (const std::string problem = detail::name_problem(entry.name); !problem.empty()) fail(problem);
      if (!entry.tensor.defined()) fail(fmt::format("tensor {} is undefined", detail::in_quotes(entry.name)));
      sorted.push_back(&entry);
    }
    std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
    for (std::size_t i = 1; i < sorted.size(); ++i)
      if (sorted[i]->name == sorted[i - 1]->name)
        fail(fmt::format("two tensors are called {}", detail::in_quotes(sorted[i]->name)));

    for (const NamedTensor* entry : sorted) {
      const Tensor& tensor = entry->tensor;
      const auto same = [&](const Item& item) {
        const Tensor& other = item.entry->tensor;
        return &other.storage() == &tensor.storage() && other.dtype() == tensor.dtype() &&
               other.shape() == tensor.shape();
      };
      if (const auto first = std::find_if(items_.begin(), items_.end(), same); first != items_.end()) {
        metadata_.push_back({entry->name, first->entry->name});
        continue;
      }
      const std::string_view dtype = stored_name(tensor.dtype(), half_);
      const std::uint64_t bits = detail::stored_type(dtype)->bits;
      items_.push_back({entry, dtype, bits, static_cast<std::uint64_t>(tensor.numel()) * bits / 8});
    }
    // Wide types first: without a hole everything is aligned.
    std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) { return a.bits > b.bits; });
  }

  // Refuses, of what was asked for, what would read back as something else. The ties are the rest of `metadata_`.
  void check_metadata(const Metadata& given) {
    const auto is_tensor = [&](const std::string& name) {
      return std::any_of(items_.begin(), items_.end(), [&](const Item& item) { return item.entry->name == name; });
    };
    for (const MetadataEntry& entry : given)
      if (is_tensor(entry.value) && !is_tensor(entry.key) && detail::name_problem(entry.key).empty())
        fail(fmt::format("metadata {{{}: {}}} would tie a name to a tensor", detail::in_quotes(entry.key),
                         detail::in_quotes(entry.value)));
    std::sort(metadata_.begin(), metadata_.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
    for (std::size_t i = 1; i < metadata_.size(); ++i)
      if (metadata_[i].key == metadata_[i - 1].key)
        fail(fmt::format("duplicate key {} in the metadata", detail::in_quotes(metadata_[i].key)));
  }

  void write_header() {
    std::string_view separator = "{";
    const auto add = [&](const std::string& key, std::string_view value) {
      header_ += separator;
      header_ += json_string(key);
      header_ += ':';
      header_ += value;
      separator = ",";
    };
    if (!metadata_.empty()) {
      std::string text = "{";
      for (const MetadataEntry& entry : metadata_) {
        if (text.size() > 1) text += ',';
        text += json_string(entry.key) + ':' + json_string(entry.value);
      }
      add(std::string(detail::metadata_name), text + '}');
    }
    std::uint64_t offset = 0;
    for (const Item& item : items_) {
      const Shape& shape = item.entry->tensor.shape();
      add(item.entry->name, fmt::format(R"({{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", item.dtype,
                                        fmt::join(shape, ","), offset, offset + item.bytes));
      offset += item.bytes;
    }
    header_ += items_.empty() && metadata_.empty() ? "{}" : "}";
    header_.resize((header_.size() + 7) / 8 * 8, ' ');
    if (header_.size() > detail::largest_header)
      fail(fmt::format("a header of {} bytes; at most {} are allowed", header_.size(), detail::largest_header));
  }

  template <class T>
  void write_halves(wengert::detail::Replacement& file, const T* values, std::int64_t count) const {
    std::uint16_t piece[1 << 14];
    while (count > 0) {
      const auto some = static_cast<std::size_t>(std::min<std::int64_t>(count, std::ssize(piece)));
      if (*half_ == Half::float16)
        std::transform(values, values + some, piece, detail::narrow<detail::binary16, T>);
      else
        std::transform(values, values + some, piece, detail::narrow<detail::bfloat16, T>);
      file.write(piece, some * sizeof(*piece));
      values += some;
      count -= static_cast<std::int64_t>(some);
    }
  }

  const std::string& path_;
  std::optional<Half> half_;
  Metadata metadata_;  // with the ties
  std::vector<Item> items_;
  std::string header_;
};

}  // namespace

void save_safetensors(const NamedTensors& tensors, const std::string& path, const SaveOptions& options) {
  Writer(tensors, path, options).save();
}

}  // namespace wengert::io
