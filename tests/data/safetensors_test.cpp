// Files are built by hand from the format's description, so that reader and writer are each held
// to it and not only to one another.
#include "data/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error_text.h"
#include "base/philox.h"
#include "base/temp_folder.h"

namespace adjoint {
namespace {

using nlohmann::json;
using Metadata = std::map<std::string, std::string>;

std::string length(uint64_t size) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(size >> (8 * i) & 0xFF);
  return bytes;
}

std::string file_of(const std::string& header, const std::string& data) {
  return length(header.size()) + header + data;
}

// What the reader says to these bytes; "" when it takes them.
std::string refusal(const TempFolder& folder, const std::string& bytes) {
  write_file_atomically(folder / "x.safetensors", bytes);
  return error_text([&] { SafetensorsFile(folder / "x.safetensors"); });
}

std::string bytes_of(const SafetensorView& view) {
  return {static_cast<const char*>(view.data), static_cast<size_t>(view.size.count)};
}

const std::string kHeader = R"({"__metadata__":{"step":"7"},)"
                            R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                            R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]},)"
                            R"("zero":{"dtype":"I64","shape":[0,5],"data_offsets":[14,14]},)"
                            R"("scalar":{"dtype":"F16","shape":[],"data_offsets":[14,16]}})";
const std::string kData(
    "\x00\x00\x80\x3F\x00\x00\x00\xC0"
    "123456"
    "78",
    16);

TEST(Safetensors, ReadsAFileWrittenByHand) {
  const TempFolder folder;
  ASSERT_EQ(refusal(folder, file_of(kHeader, kData)), "");
  const SafetensorsFile file(folder / "x.safetensors");
  EXPECT_EQ(file.metadata(), Metadata({{"step", "7"}}));
  ASSERT_EQ(file.tensors().size(), 4u);
  const SafetensorView* a = file.find("a");
  ASSERT_TRUE(a);
  EXPECT_EQ(a->dtype, "F32");
  EXPECT_EQ(a->shape, std::vector<int64_t>({2, 1}));
  float values[2] = {};
  std::memcpy(values, a->data, sizeof values);
  EXPECT_EQ(values[0], 1.0f);   // 0x3F800000
  EXPECT_EQ(values[1], -2.0f);  // 0xC0000000
  EXPECT_EQ(bytes_of(*file.find("b")), "123456");
  EXPECT_EQ(bytes_of(*file.find("scalar")), "78");
  EXPECT_EQ(file.find("zero")->size, Bytes{0});
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_EQ(file.find("__metadata__"), nullptr);
}

TEST(Safetensors, TakesAPaddedHeaderAndAnEmptyFile) {
  const TempFolder folder;
  EXPECT_EQ(refusal(folder, file_of(kHeader + "     ", kData)), "");
  EXPECT_EQ(refusal(folder, file_of("{}", "")), "");
}

TEST(Safetensors, WritesTheFormat) {
  const TempFolder folder;
  const float x[2] = {1.0f, -2.0f};
  const uint16_t y[3] = {0x3231, 0x3433, 0x3635};
  const SafetensorView tensors[] = {{"b", "BF16", {3}, y, {6}}, {"a", "F32", {2, 1}, x, {8}}};
  AtomicFile out(folder / "x");
  write_safetensors(out, tensors, {{"step", "7"}});
  out.commit();

  const std::string bytes = read_file(folder / "x");
  uint64_t header_size = 0;
  for (int i = 7; i >= 0; --i) header_size = header_size << 8 | static_cast<uint8_t>(bytes[i]);
  EXPECT_EQ(header_size % 8, 0u);
  // Wider elements go first, so that no float lies at an odd address.
  EXPECT_EQ(json::parse(bytes.substr(8, header_size)), json::parse(R"({
    "__metadata__": {"step": "7"},
    "a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
    "b": {"dtype": "BF16", "shape": [3], "data_offsets": [8, 14]}})"));
  EXPECT_EQ(bytes.substr(8 + header_size), kData.substr(0, 14));
}

TEST(Safetensors, RoundTrips) {
  const TempFolder folder;
  const std::string data = "0123456789abcdefghijklmn";
  const std::vector<SafetensorView> tensors = {
      {"bool", "BOOL", {3}, data.data(), {3}},
      {"f64", "F64", {3, 1}, data.data(), {24}},
      {"empty", "F32", {4, 0}, nullptr, {0}},
      {"h.0.w", "BF16", {1, 2, 2}, data.data() + 1, {8}},
      {"i32", "I32", {}, data.data() + 2, {4}},
      {"\xC3\xA9 \"quoted\"\n", "F16", {1}, data.data(), {2}},
  };
  const Metadata metadata = {{"format", "pt"}, {"text", "\xE6\x97\xA5\n\"\\"}};
  AtomicFile out(folder / "x");
  write_safetensors(out, tensors, metadata);
  out.commit();

  const SafetensorsFile file(folder / "x");
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const SafetensorView& tensor : tensors) {
    const SafetensorView* found = file.find(tensor.name);
    ASSERT_TRUE(found) << tensor.name;
    EXPECT_EQ(found->dtype, tensor.dtype);
    EXPECT_EQ(found->shape, tensor.shape);
    ASSERT_EQ(found->size, tensor.size);
    EXPECT_TRUE(tensor.size.count == 0 || bytes_of(*found) == bytes_of(tensor)) << tensor.name;
    const uintptr_t alignment = tensor.dtype == "F64" ? 8 : tensor.dtype == "I32" ? 4 : 1;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(found->data) % alignment, 0u) << tensor.name;
  }
}

TEST(Safetensors, NothingToSaveIsAFileToo) {
  const TempFolder folder;
  AtomicFile out(folder / "x");
  write_safetensors(out, {}, {});
  out.commit();
  EXPECT_TRUE(SafetensorsFile(folder / "x").tensors().empty());
}

TEST(Safetensors, MetadataThatIsNotUtf8DoesNotStopASave) {
  const TempFolder folder;
  AtomicFile out(folder / "x");
  write_safetensors(out, {}, {{"prompt", "a\xFF"}});
  out.commit();
  EXPECT_EQ(SafetensorsFile(folder / "x").metadata().at("prompt"), "a\xEF\xBF\xBD");
}

TEST(Safetensors, RefusesDamagedFiles) {
  struct Case {
    std::string bytes;
    const char* why;
  };
  const std::string eight(8, 'x');
  const auto one = [&](const std::string& entry) {
    return file_of("{\"t\":" + entry + "}", eight);
  };
  const auto offsets = [&](const std::string& both) {
    return one(R"({"dtype":"F32","shape":[2],"data_offsets":)" + both + "}");
  };
  const auto shape = [&](const std::string& dims) {
    return one(R"({"dtype":"F32","shape":)" + dims + R"(,"data_offsets":[0,8]})");
  };
  const auto two = [&](const std::string& first, const std::string& second) {
    return file_of(R"({"s":{"dtype":"I32","shape":[1],"data_offsets":)" + first +
                       R"(},"t":{"dtype":"I32","shape":[1],"data_offsets":)" + second + "}}",
                   eight);
  };
  const Case cases[] = {
      {"", "8 bytes"},
      {"1234567", "has 7 in all"},
      {length(0), "not a JSON object"},
      {length(1), "said to have 1 bytes, but the file has only 0"},
      {length(100) + "{}", "said to have 100 bytes"},
      {length(UINT64_MAX) + "{}", "said to have 18446744073709551615 bytes"},
      {length(uint64_t{1} << 63) + "{}", "said to have 9223372036854775808 bytes"},
      {length(UINT64_MAX - 7) + "{}", "said to have"},
      {file_of("{", ""), "not a JSON object"},
      {file_of("{} x", ""), "not a JSON object"},
      {file_of("[]", ""), "not a JSON object"},
      {file_of("null", ""), "not a JSON object"},
      {file_of("{\"\xFF\":1}", ""), "not a JSON object"},
      {file_of(std::string(100'000, '['), ""), "not a JSON object"},
      {file_of(std::string(100'000, '[') + std::string(100'000, ']'), ""), "not a JSON object"},
      {file_of(R"({"t":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"t":{}})", eight),
       "the name \"t\" comes twice in one object at its byte 56"},
      {file_of(R"({"a\u0000b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})", eight),
       "a tensor's name holds a zero: \"a\\u0000b\""},
      {file_of(R"({"\ud800":{}})", ""), "not a JSON object: this is not JSON at its byte 9"},
      {file_of("{}", "x"), "tensors end at byte 0"},
      {file_of(R"({"__metadata__":[]})", ""), "__metadata__ is not an object"},
      {file_of(R"({"__metadata__":{"a":1}})", ""), "'a' is not a string"},
      {one("3"), "tensor 't' is not described by an object"},
      {one("{}"), "no dtype"},
      {one(R"({"dtype":32,"shape":[2],"data_offsets":[0,8]})"), "no dtype"},
      {one(R"({"dtype":"F31","shape":[2],"data_offsets":[0,8]})"), "unknown dtype \"F31\""},
      {one(R"({"dtype":"F32","data_offsets":[0,8]})"), "no shape"},
      {one(R"({"dtype":"F32","shape":[2]})"), "no data_offsets"},
      {shape("2"), "no shape"},
      {shape("[-2]"), "no shape"},
      {shape("[2.0]"), "no shape"},
      {shape("[\"2\"]"), "no shape"},
      {shape("[99999999999999999999]"), "no shape"},
      {shape("[9223372036854775808]"), "no shape"},
      {shape("[9223372036854775807]"), "more than any memory"},
      {shape("[4294967296,4294967296]"), "more than any memory"},
      {shape("[4611686018427387904,4,0]"), "more than any memory"},
      {shape("[3]"), "needs 12 bytes, but has 8"},
      {shape("[]"), "needs 4 bytes, but has 8"},
      {shape("[0]"), "needs 0 bytes, but has 8"},
      {offsets("[0]"), "no data_offsets"},
      {offsets("[0,4,8]"), "no data_offsets"},
      {offsets("[-8,0]"), "no data_offsets"},
      {offsets("{}"), "no data_offsets"},
      {offsets("[8,0]"), "lies at bytes 8 to 0"},
      {offsets("[1,9]"), "lies at bytes 1 to 9 of the data, but the file has only 8"},
      {offsets("[9223372036854775800,9223372036854775807]"), "lies at bytes"},
      {offsets("[18446744073709551608,0]"), "no data_offsets"},
      {two("[0,4]", "[0,4]"), "'t' starts at byte 0"},
      {two("[0,4]", "[3,7]"), "'t' starts at byte 3"},
      {two("[0,4]", "[5,9]"), "lies at bytes 5 to 9"},
      {file_of(R"({"t":{"dtype":"I32","shape":[1],"data_offsets":[4,8]}})", eight),
       "'t' starts at byte 4"},
      {file_of(R"({"t":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})", eight),
       "tensors end at byte 4 of the data, but the file has 8"},
  };
  const TempFolder folder;
  for (const auto& [bytes, why] : cases) {
    const std::string error = refusal(folder, bytes);
    EXPECT_TRUE(has(error, "x.safetensors: ")) << why;
    EXPECT_TRUE(has(error, why)) << "wanted: " << why << "\nfound: " << error;
    EXPECT_FALSE(has(error, "\n")) << error;
  }
}

TEST(Safetensors, RefusesAHeaderBeyondTheFormatsLimit) {
  const TempFolder folder;
  write_file_atomically(folder / "x", length(100'000'001));
  std::filesystem::resize_file(folder / "x", 100'000'100);  // holes, no disk
  const std::string error = error_text([&] { SafetensorsFile(folder / "x"); });
  EXPECT_TRUE(has(error, "said to have 100000001 bytes")) << error;
}

TEST(Safetensors, RefusesAMissingFileAndAFolder) {
  const TempFolder folder;
  const std::string missing = error_text([&] { SafetensorsFile(folder / "missing"); });
  EXPECT_TRUE(has(missing, "missing: there is no such file")) << missing;
  const std::string directory = error_text([&] { SafetensorsFile(folder / ""); });
  EXPECT_TRUE(has(directory, "not a plain file")) << directory;
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const TempFolder folder;
  const std::string bytes = file_of(kHeader, kData);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(refusal(folder, bytes.substr(0, size)), "") << size;
  }
}

// Either refused with an Error, or a file whose every view can be read; the sanitizers watch.
TEST(Safetensors, NoChangedByteCrashesTheReader) {
  const TempFolder folder;
  const std::string bytes = file_of(kHeader, kData);
  const RandomStream random{random_key(1, "safetensors_test")};
  for (size_t at = 0; at < 8 + kHeader.size(); ++at) {
    for (uint64_t trial = 0; trial < 4; ++trial) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(random.bits(4 * at + trial));
      if (!refusal(folder, damaged).empty()) continue;
      const SafetensorsFile file(folder / "x.safetensors");
      int64_t total = 0;
      for (const SafetensorView& view : file.tensors()) {
        total += static_cast<int64_t>(bytes_of(view).size());
      }
      EXPECT_EQ(total, static_cast<int64_t>(kData.size()));
    }
  }
}

TEST(SafetensorsDeathTest, AWrongSizeIsOurMistake) {
  const TempFolder folder;
  const float x[2] = {};
  const SafetensorView wrong[] = {{"x", "F32", {3}, x, {8}}};
  AtomicFile out(folder / "x");
  EXPECT_DEATH(write_safetensors(out, wrong, {}), "another size than its shape");
  const SafetensorView twice[] = {{"x", "F32", {2}, x, {8}}, {"x", "F32", {2}, x, {8}}};
  EXPECT_DEATH(write_safetensors(out, twice, {}), "both be called x");
}

}  // namespace
}  // namespace adjoint
