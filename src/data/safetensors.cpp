// Each check relies on the ones before it: the length of the header fits the file, the header is
// JSON, each entry agrees with its dtype and shape, and only then its range in the data is checked.
#include "data/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/near_path.h"
#include "base/text.h"

namespace adjoint {

namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "the format's bytes are used as they are");

constexpr const char* kMetadata = "__metadata__";
constexpr uint64_t kMaxHeader = 100'000'000;  // the format's own limit

const std::map<std::string, int64_t, std::less<>> kDtypeBytes = {
    {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I8", 1},  {"U8", 1},
    {"BF16", 2}, {"F16", 2},     {"I16", 2},     {"U16", 2}, {"F32", 4},
    {"I32", 4},  {"U32", 4},     {"F64", 8},     {"I64", 8}, {"U64", 8}};

// dtype x shape; nothing when that does not fit 64 bits.
std::optional<Bytes> bytes_of(int64_t element_bytes, const std::vector<int64_t>& shape) {
  int64_t bytes = element_bytes;
  for (const int64_t dim : shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
  }
  return Bytes{bytes};
}

std::string show(const std::vector<int64_t>& shape) { return json(shape).dump(); }

// A list of whole numbers that fit int64_t and are not negative, or nothing.
std::optional<std::vector<int64_t>> whole_numbers(const json& entry, const char* field) {
  const auto found = entry.find(field);
  if (found == entry.end() || !found->is_array()) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const json& number : *found) {
    if (!number.is_number_unsigned()) return std::nullopt;
    const auto value = number.get<uint64_t>();
    if (value > uint64_t{std::numeric_limits<int64_t>::max()}) return std::nullopt;
    numbers.push_back(static_cast<int64_t>(value));
  }
  return numbers;
}

// `place` is the file and the tensor, for the message.
SafetensorView read_entry(const std::string& place, const std::string& name, const json& entry,
                          const std::byte* data, Bytes data_size) {
  if (!entry.is_object()) fail(place, " is not described by an object");
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) fail(place, " has no dtype");
  const auto known = kDtypeBytes.find(dtype->get_ref<const std::string&>());
  if (known == kDtypeBytes.end()) {
    std::vector<std::string> names;
    names.reserve(kDtypeBytes.size());
    for (const auto& [known_name, bytes] : kDtypeBytes) names.push_back(known_name);
    fail(place, " has the unknown dtype ", dtype->dump(), ", not one of ", join(names, ", "));
  }
  auto shape = whole_numbers(entry, "shape");
  if (!shape) fail(place, " has no shape, a list of whole numbers");
  const auto offsets = whole_numbers(entry, "data_offsets");
  if (!offsets || offsets->size() != 2) fail(place, " has no data_offsets, two whole numbers");

  const auto wanted = bytes_of(known->second, *shape);
  if (!wanted) fail(place, " has shape ", show(*shape), ", more than any memory holds");
  const int64_t begin = (*offsets)[0], end = (*offsets)[1];
  if (begin > end || end > data_size.count) {
    fail(place, " lies at bytes ", begin, " to ", end, " of the data, but the file has only ",
         data_size.count, " bytes of data");
  }
  if (end - begin != wanted->count) {
    fail(place, " is ", known->first, show(*shape), " and needs ", wanted->count,
         " bytes, but has ", end - begin);
  }
  return {.name = name,
          .dtype = known->first,
          .shape = std::move(*shape),
          .data = data + begin,
          .size = *wanted};
}

const std::byte* begin_of(const SafetensorView& view) {
  return static_cast<const std::byte*>(view.data);
}

// Each tensor must start where the one before ends: no byte is shared and none is left over.
void check_layout(const std::string& file, const std::vector<SafetensorView>& tensors,
                  const std::byte* data, Bytes data_size) {
  const std::byte* end = data;
  for (const SafetensorView& tensor : tensors) {
    if (begin_of(tensor) != end) {
      fail(file, ": tensor '", tensor.name, "' starts at byte ", begin_of(tensor) - data,
           " of the data, but the one before it ends at byte ", end - data);
    }
    end += tensor.size.count;
  }
  if (end != data + data_size.count) {
    fail(file, ": the tensors end at byte ", end - data, " of the data, but the file has ",
         data_size.count, " bytes of data");
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : mapped_(path) {
  const std::string file = path.string();
  const Bytes size = mapped_.size();
  if (size.count < 8) {
    fail(file, ": a safetensors file starts with 8 bytes that give the length of its ",
         "header, but this one has ", size.count, " in all");
  }
  uint64_t header_size = 0;
  std::memcpy(&header_size, mapped_.data(), 8);
  if (header_size > kMaxHeader || header_size > static_cast<uint64_t>(size.count) - 8) {
    fail(file, ": the header is said to have ", header_size, " bytes, but the file has only ",
         size.count - 8, " after the length, and a header at most ", kMaxHeader);
  }
  const char* header_text = mapped_.text().data() + 8;
  const std::byte* data = mapped_.data() + 8 + header_size;
  const Bytes data_size{size.count - 8 - static_cast<int64_t>(header_size)};

  const auto parsed = try_parse_json({header_text, header_size});
  if (const auto* mistake = std::get_if<JsonMistake>(&parsed)) {
    fail(file, ": the header is not a JSON object: ", mistake->what, " at its byte ",
         mistake->byte);
  }
  const json& header = std::get<json>(parsed);
  if (!header.is_object()) {
    fail(file, ": the header is not a JSON object, it is ", header.type_name());
  }
  for (const auto& [name, entry] : header.items()) {
    // It would cut off the messages that quote the name.
    if (name.find('\0') != name.npos) {
      fail(file, ": a tensor's name holds a zero: ", json(name).dump());
    }
    if (name != kMetadata) {
      const std::string place = join_parts(file, ": tensor '", name, "'");
      tensors_.push_back(read_entry(place, name, entry, data, data_size));
      continue;
    }
    if (!entry.is_object()) fail(file, ": ", kMetadata, " is not an object");
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) fail(file, ": ", kMetadata, " '", key, "' is not a string");
      metadata_[key] = value;
    }
  }
  // By end as well, so that an empty tensor comes before the one that starts at the same byte.
  std::stable_sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) {
    return std::pair(begin_of(a), a.size) < std::pair(begin_of(b), b.size);
  });
  check_layout(file, tensors_, data, data_size);
  for (size_t i = 0; i < tensors_.size(); ++i) index_of_[tensors_[i].name] = i;
}

const SafetensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_of_.find(name);
  return found == index_of_.end() ? nullptr : &tensors_[found->second];
}

void write_safetensors(AtomicFile& file, std::span<const SafetensorView> tensors,
                       const std::map<std::string, std::string>& metadata) {
  write_safetensors(file, tensors, metadata,
                    [&](const SafetensorView& tensor) { file.write(tensor.data, tensor.size); });
}

SafetensorsLayout safetensors_layout(std::span<const SafetensorView> tensors,
                                     const std::map<std::string, std::string>& metadata) {
  const auto element_bytes = [](const SafetensorView& tensor) {
    const auto known = kDtypeBytes.find(tensor.dtype);
    CHECK(known != kDtypeBytes.end(), tensor.name + " has the unknown dtype " + tensor.dtype);
    return known->second;
  };
  SafetensorsLayout layout;
  layout.offsets.resize(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) layout.order.push_back(i);
  std::stable_sort(layout.order.begin(), layout.order.end(), [&](size_t a, size_t b) {
    return element_bytes(tensors[a]) > element_bytes(tensors[b]);
  });

  json header = json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  int64_t offset = 0;
  for (const size_t i : layout.order) {
    const SafetensorView& tensor = tensors[i];
    CHECK(bytes_of(element_bytes(tensor), tensor.shape) == tensor.size,
          tensor.name + " has another size than its shape " + show(tensor.shape));
    CHECK(tensor.name != kMetadata && !header.contains(tensor.name),
          "two tensors cannot both be called " + tensor.name);
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.size.count}}};
    layout.offsets[i] = offset;
    offset += tensor.size.count;
  }
  // Metadata may quote what a user typed; bytes that are not UTF-8 must not lose a checkpoint.
  std::string text = header.dump(-1, ' ', false, json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t header_size = text.size();
  layout.head.assign(reinterpret_cast<const char*>(&header_size), sizeof header_size);
  layout.head += text;
  for (int64_t& begin : layout.offsets) begin += static_cast<int64_t>(layout.head.size());
  return layout;
}

void write_safetensors(AtomicFile& file, std::span<const SafetensorView> tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<void(const SafetensorView&)>& put) {
  const SafetensorsLayout layout = safetensors_layout(tensors, metadata);
  file.write(layout.head);
  for (const size_t i : layout.order) {
    if (tensors[i].size.count > 0) put(tensors[i]);
  }
}

}  // namespace adjoint
