#include "train/config.h"

#include <toml++/toml.h>

#include <charconv>
#include <cmath>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "functors/functor_text.h"
#include "train/save.h"

namespace adjoint {

using nlohmann::json;
using Kind = OptionSpec::Kind;

std::span<const OptionSpec> train_options() {
  static const std::vector<OptionSpec> options = {
      {"model", Kind::kText, "char",
       "a preset (char, ref, gpt2, llama3.2-1b, ...) or a .scheme file"},
      {"data", Kind::kText, "", "a text file to train on"},
      {"tokenizer",
       Kind::kText,
       "char",
       "how the text becomes tokens",
       -1e300,
       1e300,
       {"byte", "char", "word"}},
      {"out", Kind::kText, "", "the folder to save to (default: runs/MODEL)"},
      {"init", Kind::kText, "",
       "start from the parameters of another run's folder, with its model and tokenizer; what the "
       "stack adds starts fresh"},
      {"steps", Kind::kInteger, 2000, "how many steps the run has; the schedule ends there", 1,
       1e12},
      {"stop_after", Kind::kInteger, 0, "save and stop after this step of the schedule; 0: go on",
       0, 1e12},
      {"batch", Kind::kInteger, 12, "samples per step", 1, 1e6},
      {"context", Kind::kInteger, 0, "tokens per sample; 0: the model's", 0, 1e7},
      {"lr", Kind::kNumber, 1e-3, "the highest learning rate", 0, 1e3},
      {"min_lr", Kind::kNumber, -1, "the last learning rate; -1: a tenth of lr", -1, 1e3},
      {"schedule",
       Kind::kText,
       "wsd",
       "warm-up, then: cosine to min_lr | wsd: constant, cooling down at the end | constant",
       -1e300,
       1e300,
       {"cosine", "wsd", "constant"}},
      {"warmup", Kind::kInteger, -1, "steps of warm-up; -1: a twentieth of the run, 100 at most",
       -1, 1e12},
      {"cooldown", Kind::kNumber, 0.2, "the part of the run that wsd cools down in", 0, 1},
      {"lr_scaling",
       Kind::kText,
       "none",
       "how lr grows with batch / base_batch",
       -1e300,
       1e300,
       {"none", "linear", "sqrt"}},
      {"base_batch", Kind::kInteger, 12, "the batch that lr was chosen for", 1, 1e6},
      {"optimizer",
       Kind::kText,
       "adamw",
       "who updates the parameters",
       -1e300,
       1e300,
       {"adamw", "momentum", "sgd"}},
      {"beta1", Kind::kNumber, 0.9, "AdamW's first moment", 0, 0.999999},
      {"beta2", Kind::kNumber, 0.99, "AdamW's second moment", 0, 0.999999},
      // Without it a parameter whose gradient is 0 would become 0/0, and squares of gradients below
      // 1e-22 are 0 in float32.
      {"eps", Kind::kNumber, 1e-8, "AdamW's eps, 1e-20 or more", 0, 1, {}, 1e-20},
      {"momentum", Kind::kNumber, 0.9, "the momentum of momentum", 0, 0.999999},
      {"weight_decay", Kind::kNumber, 0.1, "of matrices and tables; gains and biases have none", 0,
       100},
      {"clip", Kind::kNumber, 1.0, "the largest norm of all gradients together; 0: no clipping", 0,
       1e30},
      {"stack", Kind::kText, "",
       "functors joined by '|', such as \"bf16 | checkpoint(every=2)\"; see adjoint functors"},
      {"fit", Kind::kText, "",
       "choose the fastest stack within this many bytes, such as 8GB, beside what --stack names"},
      {"allow_approximating", Kind::kSwitch, false,
       "--fit may choose bf16, too, which is another function"},
      {"profile", Kind::kText, "",
       "--fit goes by the times of this folder of `adjoint profile`, not by the CPU's sheet"},
      {"seed", Kind::kInteger, 1, "decides initial weights, batches and dropout", 0, 1e15},
      {"eval_every", Kind::kInteger, 250, "steps between evaluations; 0: only at the end", 0, 1e12},
      {"eval_batches", Kind::kInteger, 20,
       "batches per evaluation; 0: the whole validation part, once through", 0, 1e9},
      {"save_every", Kind::kInteger, 500, "steps between saves; 0: only at the end", 0, 1e12},
      {"log_every", Kind::kInteger, 10, "steps between lines of metrics.jsonl", 1, 1e12},
      {"val_fraction", Kind::kNumber, 0.1, "the last part of the data, for validation", 0.0001,
       0.9},
      {"max_vocab", Kind::kInteger, 8192, "the most words of the word tokenizer", 2, 1e7},
      {"device", Kind::kText, "cpu", "where the steps run", -1e300, 1e300, {"cpu", "cuda"}},
      {"deterministic", Kind::kSwitch, false,
       "the same bits every time also on cuda, somewhat slower"},
      {"threads", Kind::kInteger, 0, "CPU threads; 0: as many as there are cores", 0, 1024},
      {"workspace", Kind::kText, "",
       "no kernel takes more scratch memory than this, such as 64MiB, where it has another way "
       "(default: what the device's sheet says); how products are summed depends on it"},
      {"resume", Kind::kSwitch, false, "go on where the run in --out stopped"},
      {"overwrite", Kind::kSwitch, false, "begin anew even if --out holds a run"},
  };
  return options;
}

namespace {

const OptionSpec& option_named(const std::string& name) {
  std::vector<std::string> names;
  for (const OptionSpec& option : train_options()) {
    if (option.name == name) return option;
    names.emplace_back(option.name);
  }
  fail("there is no option '", name, "'", did_you_mean(name, names));
}

std::string describe(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void check(const OptionSpec& option, const json& value) {
  const auto wrong = [&](const std::string& wanted) {
    fail("option '", option.name, "': wanted ", wanted, ", found ", describe(value));
  };
  const auto range = [&] {
    return " from " + shortest(option.least) + " to " + shortest(option.most);
  };
  switch (option.kind) {
    case Kind::kText:
      if (!value.is_string()) wrong("a text");
      if (!option.choices.empty() && std::find(option.choices.begin(), option.choices.end(),
                                               value.get<std::string>()) == option.choices.end()) {
        wrong(join(option.choices, " or "));
      }
      return;
    case Kind::kInteger:
      if (!value.is_number_integer()) wrong("a whole number");
      break;
    case Kind::kNumber:
      if (!value.is_number()) wrong("a number");
      break;
    case Kind::kSwitch:
      if (!value.is_boolean()) wrong("true or false");
      return;
  }
  const double number = value.get<double>();
  if (!(number >= option.least && number <= option.most)) {
    wrong((option.kind == Kind::kInteger ? "a whole number" : "a number") + range());
  }
}

}  // namespace

namespace {
// Settings that are numbers of the right kind and would still ruin the parameters.
void check_trains(const TrainConfig& config) {
  for (const OptionSpec& option : train_options()) {
    const json& value = config.all.at(std::string(option.name));
    if (!value.is_number() || value.get<double>() >= option.least_to_train) continue;
    fail("option '", option.name, "': wanted a number from ", shortest(option.least_to_train),
         " to ", shortest(option.most), ", found ", describe(value));
  }
}
}  // namespace

TrainConfig make_config(std::span<const json> layers) {
  json all = json::object();
  for (const OptionSpec& option : train_options()) all[std::string(option.name)] = option.otherwise;
  json settings = json::object();
  for (const json& layer : layers) {
    if (layer.is_null()) continue;
    for (const auto& [key, value] : layer.items()) {
      if (key == "set") {
        if (!value.is_object())
          fail("option 'set': wanted names with numbers, found ", value.dump());
        settings.update(value);
        continue;
      }
      check(option_named(key), value);
      all[key] = value;
    }
  }
  for (const char* flag : {"batch", "seq"}) {
    if (settings.contains(flag)) {
      fail("setting '", flag, "' is the run's: say --", flag[0] == 'b' ? "batch" : "context");
    }
  }
  for (const auto& [key, value] : settings.items()) {
    if (!value.is_number()) fail("setting '", key, "': wanted a number, found ", describe(value));
  }
  all["set"] = settings;
  const auto text = [&](const char* key) { return all[key].get<std::string>(); };
  const auto integer = [&](const char* key) { return all[key].get<int64_t>(); };
  const auto number = [&](const char* key) { return all[key].get<double>(); };
  TrainConfig c{.model = text("model"),
                .data = text("data"),
                .tokenizer = text("tokenizer"),
                .out = text("out"),
                .device = text("device"),
                .workspace = text("workspace"),
                .init = text("init"),
                .steps = integer("steps"),
                .stop_after = integer("stop_after"),
                .batch = integer("batch"),
                .context = integer("context"),
                .seed = integer("seed"),
                .threads = integer("threads"),
                .lr = number("lr"),
                .min_lr = number("min_lr"),
                .cooldown = number("cooldown"),
                .schedule = text("schedule"),
                .lr_scaling = text("lr_scaling"),
                .warmup = integer("warmup"),
                .base_batch = integer("base_batch"),
                .step = {.optimizer = text("optimizer"),
                         .beta1 = number("beta1"),
                         .beta2 = number("beta2"),
                         .eps = number("eps"),
                         .momentum = number("momentum"),
                         .weight_decay = number("weight_decay"),
                         .clip = number("clip"),
                         .stack = text("stack")},
                .wish = {.budget = text("fit"),
                         .device = "cpu",
                         .profile = text("profile"),
                         .may_approximate = all["allow_approximating"].get<bool>()},
                .eval_every = integer("eval_every"),
                .eval_batches = integer("eval_batches"),
                .save_every = integer("save_every"),
                .log_every = integer("log_every"),
                .val_fraction = number("val_fraction"),
                .max_vocab = integer("max_vocab"),
                .deterministic = all["deterministic"].get<bool>(),
                .resume = all["resume"].get<bool>(),
                .overwrite = all["overwrite"].get<bool>(),
                .settings = settings,
                .all = {}};
  if (c.min_lr > c.lr) fail("option 'min_lr': wanted at most lr=", c.lr, ", found ", c.min_lr);
  if (c.out.empty()) {
    c.out = "runs/" + std::filesystem::path(c.model).stem().string();
    all["out"] = c.out;
  }
  c.all = all;
  return c;
}

namespace {

json saved_layer(const SavePaths& paths) {
  const json saved = read_json(paths.run());
  if (!saved.contains("options") || !saved["options"].is_object()) {
    fail(paths.run().string(), ": wanted the settings of a run under \"options\"");
  }
  json options = saved["options"];
  // The run keeps a copy of each functor that its stack took from a file.
  if (options.contains("stack") && options["stack"].is_string()) {
    options["stack"] =
        with_functor_files(options["stack"].get<std::string>(),
                           [&](const std::string& file) { return (paths.folder / file).string(); });
  }
  return options;
}

ModelText saved_text(const SavePaths& paths) {
  const json saved = read_json(paths.run());
  if (!saved.contains("preset") || !saved["preset"].is_string()) {
    fail(paths.run().string(), ": wanted the model's preset under \"preset\"");
  }
  return {.file = paths.text().string(),
          .text = read_file(paths.text()),
          .preset = saved["preset"].get<std::string>()};
}

// A run that starts from another's parameters is of its model and reads its tokens, unless it is
// told otherwise; then shapes and tokenizers are compared.
ResolvedConfig config_from_base(const std::string& folder, const json& toml, const json& flags) {
  const SavePaths base(folder);
  std::error_code ignored;
  if (!std::filesystem::exists(base.run(), ignored)) {
    fail(folder, ": there is no run here to start from (no run.json)");
  }
  const json saved = saved_layer(base);
  json like = json::object();
  for (const char* key : {"model", "tokenizer", "max_vocab", "context", "set"}) {
    if (saved.contains(key)) like[key] = saved[key];
  }
  const json layers[] = {like, toml, flags};
  const TrainConfig config = make_config(layers);
  const bool same = config.model == saved.value("model", "");
  return {.config = config, .text = same ? saved_text(base) : find_model(config.model)};
}

ResolvedConfig resolve(const json& toml, const json& flags) {
  const json asked[] = {toml, flags};
  TrainConfig config = make_config(asked);
  if (!config.resume && !config.init.empty()) return config_from_base(config.init, toml, flags);
  if (!config.resume) return {.config = config, .text = find_model(config.model)};
  if (flags.contains("init")) {
    fail("--resume and --init contradict each other: a run that goes on has its parameters");
  }
  if (config.overwrite) fail("--resume and --overwrite contradict each other");
  const SavePaths paths(config.out);
  std::error_code ignored;
  if (!std::filesystem::exists(paths.run(), ignored)) {
    fail(config.out, ": there is no run here to resume (no run.json)");
  }
  const json saved = saved_layer(paths);
  const json about = read_json(paths.run());
  json before = saved;
  // Another budget is another choice, beside what was asked for and not beside the last choice.
  const bool fits = flags.contains("fit") || toml.contains("fit");
  if (fits && about.contains("asked_stack")) before["stack"] = about["asked_stack"];
  const json layers[] = {before, toml, flags};
  config = make_config(layers);
  config.out = paths.folder.string();  // the folder may have been moved
  const bool same = config.model == saved.value("model", "");
  return {.config = config,
          .text = same ? saved_text(paths) : find_model(config.model),
          .data_print = about.value("data", ""),
          .data_given = flags.contains("data") || toml.contains("data")};
}

}  // namespace

ResolvedConfig resolve_config(const json& toml, const json& flags) {
  ResolvedConfig resolved = resolve(toml, flags);
  check_trains(resolved.config);
  return resolved;
}

ResolvedConfig saved_config(const std::filesystem::path& folder) {
  const SavePaths paths(folder);
  const json saved = saved_layer(paths);
  return {.config = make_config(std::span(&saved, 1)), .text = saved_text(paths)};
}

json to_json(const TrainConfig& config, const ModelText& text) {
  json options = config.all;
  options["resume"] = options["overwrite"] = false;
  options["stop_after"] = 0;
  return {{"options", options}, {"preset", text.preset}};
}

json read_toml(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  try {
    const toml::table table = toml::parse(text, file.string());
    std::ostringstream as_json;
    as_json << toml::json_formatter{table};
    return json::parse(as_json.str());
  } catch (const toml::parse_error& e) {
    fail(file.string(), ":", e.source().begin.line, ":", e.source().begin.column, ": ",
         std::string(e.description()));
  }
}

json parse_setting(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    fail("--set: wanted NAME=NUMBER, found '", text, "'");
  }
  const std::string name(text.substr(0, equals)), value(text.substr(equals + 1));
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || !std::isfinite(number)) {
    fail("--set ", name, ": wanted a number, found '", value, "'");
  }
  return {{name, number}};
}

}  // namespace adjoint
