// Which files `--data` means: a file, a folder or a pattern, with a weight behind it if there are
// several ("books/**/*.txt:0.3").
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace adjoint {

enum class DataKind : uint8_t {
  kText,       // a document
  kJsonLines,  // .jsonl, .ndjson: a document a line
  kTokens,     // .bin: ids, as nanoGPT or llm.c write them
  kFields,     // .safetensors: one entry per token of each field
};

struct DataFile {
  std::filesystem::path path;
  DataKind kind = DataKind::kText;
};

struct DataSource {
  std::string said;              // without the weight
  std::optional<double> weight;  // as it was said
  std::vector<DataFile> files;   // in the order of their names; never none
};

DataKind kind_of(const std::filesystem::path& path);

// An Error says what there is none of.
DataSource find_source(const std::string& said);
// Several sources have weights all or none, and fields are alone.
std::vector<DataSource> find_sources(std::span<const std::string> said);

// Tells the files' bytes from others. Of a file above a quarter of a gigabyte only pieces are read.
uint64_t hash_of_file(const std::filesystem::path& path);
uint64_t hash_of_files(std::span<const DataFile> files);

}  // namespace adjoint
