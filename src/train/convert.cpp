#include "train/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/file_view.h"
#include "base/json.h"
#include "base/note.h"
#include "base/text.h"
#include "data/tokenizer.h"
#include "device/parallel.h"
#include "functors/pipeline.h"
#include "models/call_names.h"
#include "models/format_config.h"
#include "scheme/elements.h"
#include "train/merge.h"
#include "train/model_folder.h"
#include "train/peft_adapter.h"
#include "train/resolve_config.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {

// Files that go along as they are.
constexpr const char* kCopied[] = {"tokenizer.json",
                                   "tokenizer_config.json",
                                   "special_tokens_map.json",
                                   "added_tokens.json",
                                   "vocab.json",
                                   "merges.txt",
                                   "tokenizer.model",
                                   "chat_template.jinja",
                                   "generation_config.json"};

struct FloatName {
  Dtype dtype;
  const char *in_file, *in_config;
};
constexpr FloatName kFloats[] = {{Dtype::kF32, "F32", "float32"},
                                 {Dtype::kBF16, "BF16", "bfloat16"},
                                 {Dtype::kF16, "F16", "float16"}};

const FloatName& name_of(Dtype dtype) {
  return *std::find_if(std::begin(kFloats), std::end(kFloats),
                       [&](const FloatName& f) { return f.dtype == dtype; });
}

bool is_there(const fs::path& path) { return is_visible(path); }

// What is converted. `like` is the folder of the format that it came from, if there is one.
struct Converted {
  BoundModel model;
  std::vector<ParameterValues> parameters;
  fs::path like = {};
  // Whatever the parameters' values are read from.
  std::shared_ptr<const void> held = {};
};

Converted from_model_folder(const fs::path& in) {
  const auto folder = std::make_shared<ModelFolder>(in);
  BoundModel model(find_model(in.string()), {});
  std::vector<ParameterValues> parameters = folder->parameters(model);
  return {std::move(model), std::move(parameters), in, folder};
}

// The folder of the format that a run began with, if it is still there.
fs::path origin_of(const fs::path& run) {
  const fs::path origin = saved_config(run).config.model;
  return is_there(origin / "config.json") ? origin : fs::path();
}

BoundModel model_of_run(const fs::path& run) {
  const ResolvedConfig resolved = saved_config(run);
  const TrainConfig& config = resolved.config;
  return BoundModel(resolved.text,
                    {.batch = 1,
                     .context = config.context,
                     .seq = config.seq,
                     .vocab = load_tokenizer(SavePaths(run).tokenizer())->vocab_of_model(),
                     .settings = config.settings});
}

// Values in memory: of matrices that a stack rewrote, or that are held as codes.
std::vector<ParameterValues> given_values(const BoundModel& model,
                                          const std::shared_ptr<const SavedValues>& values) {
  std::vector<ParameterValues> all;
  for (StoredTensors& stored : stored_tensors(model)) {
    const std::vector<double>* numbers = &values->at(to_string(stored.source));
    all.push_back(
        {std::move(stored), Dtype::kF32, [numbers](int64_t begin, std::span<float> piece) {
           std::copy_n(numbers->begin() + begin, piece.size(), piece.begin());
         }});
  }
  return all;
}

Converted from_run(const fs::path& in) {
  if (has_adapters(in)) {
    MergedModel merged = merged_model(in);
    const auto values = std::make_shared<const SavedValues>(std::move(merged.parameters));
    std::vector<ParameterValues> parameters = given_values(merged.model, values);
    return {std::move(merged.model), std::move(parameters), origin_of(in), values};
  }
  BoundModel model = model_of_run(in);
  const auto saved = std::make_shared<SavedModel>(SavePaths(in));
  const TrainConfig config = saved_config(in).config;
  const Scheme evaluation =
      evaluation_scheme(model.forward(), parse_stack(config.step.stack), config.step);
  saved->check_fits(evaluation);
  const auto& tensors = saved->file().tensors();
  const bool floats = std::all_of(tensors.begin(), tensors.end(),
                                  [](const SafetensorView& v) { return float_dtype(v); });
  if (!floats) {
    const auto values = std::make_shared<const SavedValues>(saved_values(*saved, evaluation));
    std::vector<ParameterValues> parameters = given_values(model, values);
    return {std::move(model), std::move(parameters), origin_of(in), values};
  }
  std::vector<ParameterValues> parameters;
  for (StoredTensors& stored : stored_tensors(model)) {
    const SafetensorView* view = saved->file().find(to_string(stored.source));
    CHECK(view, "the save fits the model");
    parameters.push_back(
        {std::move(stored), *float_dtype(*view),
         [view](int64_t begin, std::span<float> piece) { read_floats(*view, begin, piece); }});
  }
  return {std::move(model), std::move(parameters), origin_of(in), saved};
}

// A run holds in float32 what its folder may have held in 16 bits: the tensors of this folder are
// written in the dtypes that they have there.
void take_dtypes(const fs::path& folder, std::vector<ParameterValues>& parameters) {
  const ModelFolder like(folder);
  for (ParameterValues& p : parameters) {
    const SafetensorView* view = like.find(p.stored.names[0]);
    if (!view) view = like.find(p.stored.short_names[0]);
    if (const auto dtype = view ? float_dtype(*view) : std::nullopt) p.dtype = *dtype;
  }
}

// One tensor of the file: entry `entry` of a parameter.
struct Written {
  SafetensorView view;
  const ParameterValues* of;
  int64_t entry;
};

std::vector<Written> tensors_of(const std::vector<ParameterValues>& parameters,
                                std::optional<Dtype> dtype) {
  std::vector<Written> all;
  for (const ParameterValues& p : parameters) {
    const Dtype as = dtype.value_or(p.dtype);
    const auto entries = static_cast<int64_t>(p.stored.names.size());
    for (int64_t e = 0; e < entries; ++e) {
      const int64_t count = p.stored.type.num_elements() / entries;
      all.push_back({{.name = p.stored.names[e],
                      .dtype = name_of(as).in_file,
                      .shape = p.stored.shape,
                      .data = nullptr,
                      .size = count * size_of(as)},
                     &p,
                     e});
    }
  }
  return all;
}

// The bytes of one tensor, in the order and the dtype of the file.
std::vector<std::byte> bytes_of(const Written& tensor) {
  const StoredTensors& stored = tensor.of->stored;
  const Dtype dtype = *float_dtype(tensor.view);
  const int64_t count = tensor.view.size.count / size_of(dtype).count;
  std::vector<float> ours(count);
  parallel_for(count, 1 << 14, [&](int64_t begin, int64_t end, int) {
    tensor.of->give(tensor.entry * count + begin, std::span(ours).subspan(begin, end - begin));
  });
  const int64_t in = stored.transposed ? stored.shape[0] : 1, out = count / in;
  std::vector<std::byte> bytes(tensor.view.size.count);
  std::atomic<bool> fits = true;
  parallel_for(count, 1 << 14, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const float value = stored.transposed ? ours[i % out * in + i / out] : ours[i];
      store_element(bytes.data(), dtype, i, value);
      const bool finite = std::isfinite(load_element(bytes.data(), dtype, i));
      if (!finite && std::isfinite(value)) fits = false;
    }
  });
  if (!fits) {
    fail("tensor '", tensor.view.name, "' has values that are too large for ", name(dtype));
  }
  return bytes;
}

// Consecutive tensors, as many to a file as fit.
std::vector<std::vector<Written>> shards_of(std::vector<Written> tensors, Bytes limit) {
  std::vector<std::vector<Written>> shards;
  Bytes size;
  for (Written& tensor : tensors) {
    if (shards.empty() || size + tensor.view.size > limit) {
      shards.emplace_back();
      size = {};
    }
    size = size + tensor.view.size;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

ConvertResult write_weights(const fs::path& out, const std::vector<ParameterValues>& parameters,
                            const ConvertOptions& options) {
  const auto shards = shards_of(tensors_of(parameters, options.dtype), options.shard);
  ConvertResult result;
  result.files = static_cast<int64_t>(shards.size());
  OrderedJson index = {{"metadata", OrderedJson::object()}, {"weight_map", OrderedJson::object()}};
  for (size_t s = 0; s < shards.size(); ++s) {
    const std::string file_name =
        shards.size() == 1 ? "model.safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size());
    std::vector<SafetensorView> views;
    std::map<std::string, const Written*> by_name;
    for (const Written& tensor : shards[s]) {
      views.push_back(tensor.view);
      by_name[tensor.view.name] = &tensor;
      index["weight_map"][tensor.view.name] = file_name;
      result.size = result.size + tensor.view.size;
      ++result.tensors;
    }
    AtomicFile file(out / file_name);
    write_safetensors(file, views, {{"format", "pt"}}, [&](const SafetensorView& view) {
      const std::vector<std::byte> bytes = bytes_of(*by_name.at(view.name));
      file.write(bytes.data(), view.size);
    });
    file.commit();
  }
  if (shards.size() > 1) {
    index["metadata"]["total_size"] = result.size.count;
    write_file_atomically(out / "model.safetensors.index.json", index.dump(2) + "\n");
  }
  return result;
}

// The model's own fields, and of the folder that it came from those that say nothing of the model.
OrderedJson config_of(const Converted& converted, Dtype dtype) {
  const BoundModel& model = converted.model;
  const Format& format = model.format();
  OrderedJson config =
      written_config(model.document(), format, model.text().file, model.settings());
  if (!model.text().architecture.empty()) config["architectures"] = {model.text().architecture};
  if (!converted.like.empty()) {
    const nlohmann::json before = read_json(converted.like / "config.json");
    for (const std::string& field : format.ignored) {
      if (before.contains(field) && !config.contains(field)) config[field] = before[field];
    }
  }
  config.erase("dtype");  // what newer versions call the next
  config["torch_dtype"] = name_of(dtype).in_config;
  return config;
}

bool is_folder_of_format(const fs::path& in) { return is_there(in / "config.json"); }

// A module that no call of the text can be was one before somebody changed the text: what reads the
// format would miss its weights, or have those of another call.
void check_modules_are_there(const BoundModel& model) {
  const Format& format = model.format();
  const auto missing = impossible_modules(model.document(), format);
  if (missing.empty()) return;
  fail(model.text().file, ": module \"", missing[0]->ours, "\"",
       missing.size() > 1 ? join_parts(", and ", missing.size() - 1, " more,") : std::string(),
       " of its format ", format.kind, " names no call of this text, so it is no ",
       format.architectures[0]);
}

void check_empty(const fs::path& out) {
  std::error_code ignored;
  if (!fs::exists(out, ignored) || (fs::is_directory(out, ignored) && fs::is_empty(out, ignored))) {
    return;
  }
  fail(out.string(), ": there is something here already; choose a folder that is new or empty");
}

ConvertResult write_adapters(const fs::path& in, const fs::path& out) {
  const ThinPairs adapters = thin_pairs(in);
  make_folders(out);
  write_peft_adapter(out, adapters, origin_of(in).string());
  ConvertResult result;
  result.tensors = 2 * static_cast<int64_t>(adapters.pairs.size());
  result.files = 1;
  for (const ThinPair& pair : adapters.pairs) {
    result.size =
        result.size + Bytes{4 * static_cast<int64_t>(pair.a_values.size() + pair.b_values.size())};
  }
  return result;
}

// The tokenizer of a run goes along where it is one that others read, byte pairs.
void write_tokenizer(const SavePaths& run, const fs::path& out) {
  if (is_there(out / "tokenizer.json") || !is_there(run.tokenizer())) return;
  const auto tokenizer = load_tokenizer(run.tokenizer());
  if (tokenizer->kind() != "bpe") {
    note_once(out.string() + ": it has no tokenizer, because the format has none of the kind '" +
              tokenizer->kind() + "'; adjoint generate wants the run, " + run.folder.string());
    return;
  }
  save_tokenizer(*tokenizer, out / "tokenizer.json");
  const OrderedJson config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  write_file_atomically(out / "tokenizer_config.json", config.dump(2) + "\n");
}

}  // namespace

ConvertResult convert(const fs::path& in, const fs::path& out, const ConvertOptions& options) {
  const bool is_run = is_there(SavePaths(in).run());
  if (!is_run && !is_folder_of_format(in)) {
    fail(in.string(), ": there is neither a run here (run.json) nor a model (config.json)");
  }
  check_empty(out);
  if (options.adapters_only) {
    if (!is_run) fail(in.string(), ": adapters are those of a run; there is no run.json here");
    if (options.dtype || !options.adapter.empty()) {
      fail("--adapters-only writes what the run has: say neither --dtype nor --adapter");
    }
    return write_adapters(in, out);
  }
  Converted converted = is_run ? from_run(in) : from_model_folder(in);
  if (is_run && !converted.like.empty()) take_dtypes(converted.like, converted.parameters);
  if (!options.adapter.empty()) {
    PeftAdapter adapter(options.adapter);
    for (ParameterValues& p : converted.parameters) p = adapter.merged(std::move(p));
    adapter.check_all_used();
  }
  check_modules_are_there(converted.model);
  const Dtype dtype = options.dtype.value_or(converted.parameters[0].dtype);
  const OrderedJson config = config_of(converted, dtype);
  make_folders(out);
  const ConvertResult result = write_weights(out, converted.parameters, options);
  const fs::path others = converted.like;
  for (const char* file : kCopied) {
    if (others.empty() || !is_there(others / file)) continue;
    write_file_atomically(out / file, read_file(others / file));
  }
  if (is_run) write_tokenizer(SavePaths(in), out);
  if (!is_there(out / "generation_config.json")) {
    OrderedJson generation = {{"_from_model_config", true}};
    for (const char* field : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
      if (config.contains(field)) generation[field] = config[field];
    }
    write_file_atomically(out / "generation_config.json", generation.dump(2) + "\n");
  }
  write_file_atomically(out / "config.json", config.dump(2) + "\n");
  return result;
}

}  // namespace adjoint
