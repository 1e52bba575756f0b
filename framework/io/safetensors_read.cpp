#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "half.hpp"
#include "safetensors_header.hpp"
#include "wengert/error.hpp"

namespace wengert::io {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

std::optional<std::string> find(const Metadata& metadata, std::string_view key) {
  for (const MetadataEntry& entry : metadata)
    if (entry.key == key) return entry.value;
  return {};
}

struct SafetensorsFile::State {
  detail::InputFile file;
  std::uint64_t data_offset = 0;
  detail::Header header;

  explicit State(const std::string& path) : file("safetensors", path) {
    const auto need = [this](std::uint64_t bytes) {
      if (file.size() < bytes)
        file.fail(fmt::format("file shorter than header says: need {}, have {}", bytes, file.size()));
    };
    std::uint64_t length = 0;
    need(sizeof(length));
    file.read(0, &length, sizeof(length));
    if (length > detail::largest_header)
      file.fail(fmt::format("a header of {} bytes; at most {} are allowed", length, detail::largest_header));
    data_offset = sizeof(length) + length;
    need(data_offset);
    std::string text(length, '\0');
    file.read(sizeof(length), text.data(), length);
    header = detail::parse_header(file, text, file.size() - data_offset);
  }

  const TensorInfo& info(std::string_view name) const {
    const auto found =
        std::lower_bound(header.tensors.begin(), header.tensors.end(), name,
                         [](const TensorInfo& info, std::string_view wanted) { return info.name < wanted; });
    if (found == header.tensors.end() || found->name != name)
      file.fail(fmt::format("there is no tensor {}", detail::in_quotes(name)));
    return *found;
  }

  // Values of two bytes, converted a piece at a time.
  template <class Widen>
  void read_halves(std::uint64_t offset, std::int64_t count, float* out, Widen widen) const {
    std::uint16_t piece[1 << 14];
    while (count > 0) {
      const auto some = static_cast<std::size_t>(std::min<std::int64_t>(count, std::ssize(piece)));
      file.read(offset, piece, some * sizeof(*piece));
      out = std::transform(piece, piece + some, out, widen);
      offset += some * sizeof(*piece);
      count -= static_cast<std::int64_t>(some);
    }
  }

  Tensor read(const TensorInfo& info, Backend& backend) const {
    const detail::StoredType& type = *detail::stored_type(info.dtype);
    if (!type.dtype)
      throw DTypeError(fmt::format("safetensors: tensor {} is {}, which no Tensor can hold; read the others one by one",
                                   detail::in_quotes(info.name), info.dtype));
    detail::HostTensor out(info.shape, *type.dtype, backend);
    const std::uint64_t offset = data_offset + static_cast<std::uint64_t>(info.begin);
    if (type.bits == 16) {
      auto* values = static_cast<float*>(out.data());
      if (info.dtype == "F16")
        read_halves(offset, info.shape.numel(), values, detail::widen_binary16);
      else
        read_halves(offset, info.shape.numel(), values, detail::widen_bfloat16);
    } else {
      file.read(offset, out.data(), static_cast<std::size_t>(info.end - info.begin));
    }
    return out.finish();
  }
};

SafetensorsFile::SafetensorsFile(const std::string& path) : state_(std::make_unique<State>(path)) {}
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

const std::vector<TensorInfo>& SafetensorsFile::tensors() const { return state_->header.tensors; }
const Metadata& SafetensorsFile::metadata() const { return state_->header.metadata; }
Tensor SafetensorsFile::read(std::string_view name, Backend& backend) const {
  return state_->read(state_->info(name), backend);
}

NamedTensors SafetensorsFile::read_all(Backend& backend) const {
  NamedTensors out;
  for (const TensorInfo& info : tensors())
    out.push_back({info.name, info.tied_to.empty() ? state_->read(info, backend) : Tensor()});
  for (std::size_t i = 0; i < out.size(); ++i)
    if (const std::string& source = tensors()[i].tied_to; !source.empty())
      out[i].tensor = wengert::find(out, source).detach();
  return out;
}

NamedTensors load_safetensors(const std::string& path, Backend& backend) {
  return SafetensorsFile(path).read_all(backend);
}

}  // namespace wengert::io
