#include "train/peft_adapter.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "models/format_config.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {

constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kTensors = "adapter_model.safetensors";
constexpr std::string_view kWeight = ".weight";

std::string adapter_tensor(std::string_view module, const char* which) {
  return "base_model.model." + std::string(module) + "." + which + ".weight";
}

}  // namespace

PeftAdapter::PeftAdapter(const fs::path& folder)
    : folder_(folder), file_(folder / kTensors), config_(read_peft_config(folder / kConfig)) {}

std::optional<PeftAdapter::Matrices> PeftAdapter::find(const StoredTensors& stored) {
  if (stored.names.size() != 1 || stored.type.rank() != 2 || !stored.names[0].ends_with(kWeight)) {
    return std::nullopt;
  }
  const std::string_view module =
      std::string_view(stored.names[0]).substr(0, stored.names[0].size() - kWeight.size());
  const std::string name_a = adapter_tensor(module, "lora_A");
  const std::string name_b = adapter_tensor(module, "lora_B");
  const SafetensorView *a = file_.find(name_a), *b = file_.find(name_b);
  if (!a && !b) return std::nullopt;
  if (!a || !b) {
    fail(folder_.string(), ": wanted both ", name_a, " and ", name_b, ", found one of them");
  }
  const int64_t out = stored.type.dim(0), in = stored.type.dim(1);
  const bool fits = float_dtype(*a) && float_dtype(*b) && a->shape.size() == 2 &&
                    b->shape.size() == 2 && a->shape[1] == in && b->shape[0] == out &&
                    a->shape[0] == b->shape[1] && a->shape[0] > 0;
  if (!fits) {
    fail(folder_.string(), ": ", name_a, " and ", name_b, " do not fit '", stored.names[0], "' [",
         out, ", ", in, "]");
  }
  used_.insert({name_a, name_b});
  const auto rank = static_cast<double>(a->shape[0]);
  return Matrices{a, b, a->shape[0], config_.alpha / (config_.by_root ? std::sqrt(rank) : rank)};
}

void PeftAdapter::load(const BoundModel& model, const std::vector<ThinPair>& pairs, Run& run) {
  const std::vector<StoredTensors> all = stored_tensors(model);
  std::vector<std::pair<const ThinPair*, Matrices>> found;
  for (const ThinPair& pair : pairs) {
    const auto stored = std::find_if(
        all.begin(), all.end(), [&](const StoredTensors& s) { return s.source == pair.weight; });
    CHECK(stored != all.end(), "adapted maps are the model's");
    const auto matrices = find(*stored);
    if (!matrices) continue;
    if (matrices->rank != pair.rank ||
        std::abs(matrices->scale - pair.scale) > 1e-9 * std::abs(pair.scale)) {
      fail(folder_.string(), ": the adapter of '", stored->names[0], "' has rank ", matrices->rank,
           " and scale ", matrices->scale, ", the stack's has rank ", pair.rank, " and scale ",
           pair.scale);
    }
    found.emplace_back(&pair, *matrices);
  }
  check_all_used();
  for (const auto& [pair, matrices] : found) {
    for (const auto& [source, view] :
         {std::pair(pair->a, matrices.a), std::pair(pair->b, matrices.b)}) {
      const SafetensorView& values = *view;
      write_parameter(
          run, source, values.shape[0] * values.shape[1],
          [&values](int64_t begin, std::span<float> piece) { read_floats(values, begin, piece); });
    }
  }
}

ParameterValues PeftAdapter::merged(ParameterValues values) {
  const auto matrices = find(values.stored);
  if (!matrices) return values;
  const int64_t rank = matrices->rank, in = values.stored.type.dim(1);
  const double scale = matrices->scale;
  std::vector<float> thin_a(rank * in), thin_b(values.stored.type.dim(0) * rank);
  read_floats(*matrices->a, 0, thin_a);
  read_floats(*matrices->b, 0, thin_b);
  values.give = [give = std::move(values.give), thin_a = std::move(thin_a),
                 thin_b = std::move(thin_b), rank, in,
                 scale](int64_t begin, std::span<float> piece) {
    give(begin, piece);
    while (!piece.empty()) {  // row by row
      const int64_t row = begin / in, column = begin % in;
      const size_t n = std::min<size_t>(piece.size(), in - column);
      std::vector<double> sum(n, 0.0);
      for (int64_t k = 0; k < rank; ++k) {
        const double factor = scale * thin_b[row * rank + k];
        const float* a_row = &thin_a[k * in + column];
        for (size_t i = 0; i < n; ++i) sum[i] += factor * a_row[i];
      }
      for (size_t i = 0; i < n; ++i) piece[i] = static_cast<float>(piece[i] + sum[i]);
      piece = piece.subspan(n);
      begin += static_cast<int64_t>(n);
    }
  };
  return values;
}

void PeftAdapter::check_all_used() const {
  for (const SafetensorView& view : file_.tensors()) {
    if (used_.count(view.name)) continue;
    fail(folder_.string(), ": tensor '", view.name,
         "' belongs to no linear map that is adapted here");
  }
}

void write_peft_adapter(const fs::path& out, const ThinPairs& adapters, const std::string& base) {
  std::map<std::string, const StoredTensors*> stored_at;
  const std::vector<StoredTensors> all = stored_tensors(adapters.model);
  for (const StoredTensors& stored : all) stored_at[to_string(stored.source)] = &stored;
  const ThinPair& first = adapters.pairs[0];
  std::vector<std::vector<float>> kept;
  std::vector<SafetensorView> views;
  std::set<std::string> targets;
  bool turned = false;
  for (const ThinPair& pair : adapters.pairs) {
    const StoredTensors* stored = stored_at.at(to_string(pair.weight));
    if (pair.rank != first.rank || std::abs(pair.scale - first.scale) > 1e-9 * first.scale) {
      fail("'", to_string(pair.weight), "' has an adapter of rank ", pair.rank, " and scale ",
           pair.scale, ", others of rank ", first.rank, " and scale ", first.scale,
           "; PEFT's layout has one for all");
    }
    const std::string module = stored->names[0].substr(0, stored->names[0].size() - kWeight.size());
    targets.insert(module.substr(module.rfind('.') + 1));
    turned = turned || stored->transposed;
    const auto add = [&](const char* which, const std::vector<double>& numbers, int64_t rows) {
      kept.emplace_back(numbers.begin(), numbers.end());
      const auto count = static_cast<int64_t>(numbers.size());
      views.push_back({.name = adapter_tensor(module, which),
                       .dtype = "F32",
                       .shape = {rows, count / rows},
                       .data = nullptr,
                       .size = {4 * count}});
    };
    add("lora_A", pair.a_values, pair.rank);
    add("lora_B", pair.b_values, static_cast<int64_t>(pair.b_values.size()) / pair.rank);
  }
  for (size_t i = 0; i < views.size(); ++i) views[i].data = kept[i].data();
  OrderedJson config;
  config["peft_type"] = "LORA";
  config["task_type"] = "CAUSAL_LM";
  config["base_model_name_or_path"] = base.empty() ? OrderedJson() : OrderedJson(base);
  config["r"] = first.rank;
  const double alpha = first.scale * static_cast<double>(first.rank);
  const bool whole = std::abs(alpha - std::round(alpha)) < 1e-9;
  config["lora_alpha"] = whole ? OrderedJson(std::llround(alpha)) : OrderedJson(alpha);
  config["target_modules"] = std::vector<std::string>(targets.begin(), targets.end());
  config["lora_dropout"] = 0.0;
  config["bias"] = "none";
  config["fan_in_fan_out"] = turned;
  config["inference_mode"] = true;
  AtomicFile file(out / kTensors);
  write_safetensors(file, views, {{"format", "pt"}});
  file.commit();
  write_file_atomically(out / kConfig, config.dump(2) + "\n");
}

}  // namespace adjoint
