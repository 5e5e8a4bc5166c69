#include "train/data_position.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "train/save.h"

namespace adjoint {

using nlohmann::json;

namespace {

constexpr int64_t kMostBatches = int64_t{1} << 50;  // sums of such numbers do not overflow

bool is_count(const json& all, const char* key) {
  return all.contains(key) && all[key].is_number_unsigned() && all[key] <= kMostBatches;
}

}  // namespace

DataPosition read_position(const SavePaths& paths) {
  DataPosition position;
  if (!std::filesystem::exists(paths.position())) return position;
  const json all = read_json(paths.position());
  const auto wrong = [&](const std::string& what) {
    fail(paths.position().string(), ": wanted ", what, ", found ", all.dump());
  };
  for (const char* key : {"left_out", "sizes"}) {
    if (!all.contains(key) || !all[key].is_array()) wrong(std::string("a list \"") + key + "\"");
  }
  for (const json& batch : all["left_out"]) {
    if (!batch.is_number_unsigned() || batch > kMostBatches) wrong("numbers of batches");
    position.leave_out(batch.get<int64_t>());
  }
  for (const json& size : all["sizes"]) {
    if (!size.is_object() || !is_count(size, "batch") || !is_count(size, "sample")) {
      wrong("\"sizes\" of \"batch\" and \"sample\"");
    }
    const DataPosition::Size next{size["batch"].get<int64_t>(), size["sample"].get<int64_t>()};
    if (!position.sizes.empty() && next.batch <= position.sizes.back().batch) {
      wrong("\"sizes\" in the order of their batches");
    }
    position.sizes.push_back(next);
  }
  return position;
}

void write_position(const SavePaths& paths, const DataPosition& position) {
  if (position == DataPosition{} && !std::filesystem::exists(paths.position())) return;
  json sizes = json::array();
  for (const DataPosition::Size& size : position.sizes) {
    sizes.push_back({{"batch", size.batch}, {"sample", size.sample}});
  }
  const json all = {{"left_out", position.left_out}, {"sizes", sizes}};
  write_file_atomically(paths.position(), all.dump(2) + "\n");
}

}  // namespace adjoint
