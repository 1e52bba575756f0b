#include "wengert/checkpoint.hpp"

#include <fmt/format.h>

#include <charconv>

#include "files.hpp"
#include "wengert/error.hpp"

namespace wengert::io {

namespace {

constexpr std::string_view version_key = "wengert.checkpoint", version = "1", reserved = "wengert.";
constexpr std::string_view model_prefix = "model.", optimizer_prefix = "optimizer.", step_suffix = ".step";

[[noreturn]] void fail(std::string_view verb, const std::string& path, std::string_view reason) {
  throw IoError(fmt::format("checkpoint: cannot {} \"{}\": {}", verb, path, reason));
}

// The numbers that stand in the metadata, under their keys.
template <class Saved, class Visit>
void for_each_number(Saved& saved, Visit visit) {
  visit("wengert.step", saved.step);
  visit("wengert.optimizer.step_count", saved.optimizer.step_count);
  visit("wengert.random.seed", saved.random.seed);
  visit("wengert.random.stream", saved.random.stream);
  visit("wengert.random.counter", saved.random.counter);
}

// A parameter's step number among the tensors of an optimiser.
bool is_counter(const NamedTensor& entry) {
  return entry.name.ends_with(step_suffix) && entry.tensor.dtype() == DType::int64 && entry.tensor.dim() == 0;
}

}  // namespace

void save_checkpoint(const Checkpoint& checkpoint, const std::string& path) {
  NamedTensors tensors;
  for (const NamedTensor& entry : checkpoint.model)
    tensors.push_back({fmt::format("{}{}", model_prefix, entry.name), entry.tensor});
  for (const NamedTensor& entry : checkpoint.optimizer.tensors)
    tensors.push_back({fmt::format("{}{}", optimizer_prefix, entry.name), entry.tensor});
  for (const auto& counter : checkpoint.optimizer.steps)
    tensors.push_back({fmt::format("{}{}{}", optimizer_prefix, counter.name, step_suffix),
                       tensor(std::vector<std::int64_t>{counter.value}, Shape())});

  SaveOptions options;
  for (const MetadataEntry& entry : checkpoint.metadata) {
    if (entry.key.starts_with(reserved))
      fail("write", path, fmt::format("metadata key {} begins with \"{}\"", detail::in_quotes(entry.key), reserved));
    options.metadata.push_back(entry);
  }
  options.metadata.push_back({std::string(version_key), std::string(version)});
  for_each_number(checkpoint, [&](const char* key, auto value) {
    options.metadata.push_back({key, fmt::to_string(value)});
  });
  save_safetensors(tensors, path, options);
}

Checkpoint load_checkpoint(const std::string& path, Backend& backend) {
  const SafetensorsFile file(path);
  const std::optional<std::string> found = find(file.metadata(), version_key);
  if (!found) fail("read", path, fmt::format("it is no checkpoint: its metadata lack {}", version_key));
  if (*found != version)
    fail("read", path, fmt::format("{} is {}, only {} is known", version_key, detail::in_quotes(*found), version));

  Checkpoint out;
  for_each_number(out, [&](const char* key, auto& value) {
    const std::string text = find(file.metadata(), key).value_or("");
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || result.ec != std::errc() || result.ptr != text.data() + text.size())
      fail("read", path, fmt::format("{} is {}, not a number", key, detail::in_quotes(text)));
  });
  for (const MetadataEntry& entry : file.metadata())
    if (!entry.key.starts_with(reserved)) out.metadata.push_back(entry);

  for (NamedTensor& entry : file.read_all(backend)) {
    if (entry.name.starts_with(model_prefix)) {
      entry.name.erase(0, model_prefix.size());
      out.model.push_back(std::move(entry));
    } else if (entry.name.starts_with(optimizer_prefix)) {
      entry.name.erase(0, optimizer_prefix.size());
      if (is_counter(entry)) {
        entry.name.resize(entry.name.size() - step_suffix.size());
        out.optimizer.steps.push_back({std::move(entry.name), entry.tensor.item<std::int64_t>()});
      } else {
        out.optimizer.tensors.push_back(std::move(entry));
      }
    } else {
      fail("read", path,
           fmt::format("tensor {} is neither the model's nor the optimiser's", detail::in_quotes(entry.name)));
    }
  }
  return out;
}

}  // namespace wengert::io
