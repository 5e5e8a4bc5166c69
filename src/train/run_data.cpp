#include "train/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/activity.h"
#include "base/counts.h"
#include "base/error.h"
#include "base/file_view.h"
#include "base/hash.h"
#include "base/note.h"
#include "base/philox.h"
#include "data/mapped_file.h"
#include "device/parallel.h"
#include "train/doubts.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {

// Texts up to this are tokenized whenever a run starts, which takes less than looking for them.
constexpr int64_t kHeldBytes = int64_t{64} << 20;
constexpr int64_t kHeldBytesOfRanks = int64_t{1} << 20;  // each by each of several ranks
constexpr int64_t kUnpacked = 8;  // a compressed file counts for so many times its bytes
// A vocabulary of words or characters is learned from the first so many bytes.
constexpr size_t kLearnedFrom = size_t{1} << 30;

int64_t bytes_to_tokenize(const DataSource& source) {
  int64_t bytes = 0;
  for (const DataFile& file : source.files) {
    if (file.kind == DataKind::kTokens) continue;
    const bool packed = without_compression(file.path) != file.path;
    bytes += static_cast<int64_t>(fs::file_size(file.path)) * (packed ? kUnpacked : 1);
  }
  return bytes;
}

bool any_file(const std::vector<DataSource>& sources, DataKind kind) {
  return std::any_of(sources.begin(), sources.end(), [&](const DataSource& source) {
    return std::any_of(source.files.begin(), source.files.end(),
                       [&](const DataFile& file) { return file.kind == kind; });
  });
}

Packing packing_of(const std::string& name, const std::vector<DataSource>& sources) {
  if (name == "windows") return Packing::kWindows;
  if (name == "padded") return Packing::kPadded;
  const bool lines = name == "auto" && any_file(sources, DataKind::kJsonLines);
  return name == "documents" || lines ? Packing::kDocuments : Packing::kCrops;
}

uint64_t hash_of_sources(const std::vector<DataSource>& sources) {
  // One source is told by its files alone, as in the runs from before there were several.
  if (sources.size() == 1 && !sources[0].weight) return hash_of_files(sources[0].files);
  uint64_t hash = sources.size();
  for (const DataSource& source : sources) {
    const uint64_t files = hash_of_files(source.files);
    const double weight = source.weight.value_or(1);
    hash = hash_of(&weight, sizeof weight, hash_of(&files, sizeof files, hash));
  }
  return hash;
}

// Whether these are the data that a run began with, by the hash in its run.json. Runs from before
// xxHash hold another one of one text, without the name of its kind; the oldest hold none.
bool is_print_of(const std::string& print, const std::string& found,
                 const std::vector<DataSource>& sources) {
  if (print.empty() || print == found) return true;
  if (print.find(':') != std::string::npos || sources[0].files.size() != 1) return false;
  const MappedFile text(sources[0].files[0].path);
  return print == fmt::format("{:016x}", stable_hash(text.text()));
}

// Whether the option names this tokenizer: its kind, or a file of the same tokenizer. A file that
// is gone since the run began is taken to be what the run's folder kept of it.
bool is_named(const Tokenizer& tokenizer, const std::string& name) {
  if (learns_tokenizer(name)) return tokenizer.kind() == name;
  return !is_visible(name) || load_tokenizer(name)->to_json() == tokenizer.to_json();
}

std::unique_ptr<Tokenizer> tokenizer_for(const TrainConfig& config,
                                         const std::optional<SavePaths>& from,
                                         const std::string& weights,
                                         const std::vector<DataSource>& sources,
                                         const ChatTemplate* chat) {
  const bool texts = any_file(sources, DataKind::kText) || any_file(sources, DataKind::kJsonLines);
  // A folder's own, unless another was asked for.
  const bool asked =
      config.tokenizer != option_named(train_options(), "tokenizer").otherwise.get<std::string>();
  if (!from && !weights.empty() && !asked) return load_tokenizer(weights);
  if (!from && !learns_tokenizer(config.tokenizer)) return make_tokenizer(config.tokenizer, "");
  if (!from && !texts) return nullptr;
  if (!from) {
    const std::string text = text_to_learn_from(
        sources, chat, config.skip_bad, config.tokenizer == "byte" ? size_t{0} : kLearnedFrom);
    if (text.empty() && config.tokenizer != "byte") {
      fail(sources[0].said, ": this source is empty: it has no text");
    }
    return make_tokenizer(config.tokenizer, text, config.max_vocab);
  }
  auto tokenizer = load_tokenizer(from->tokenizer());
  if (texts && !is_named(*tokenizer, config.tokenizer)) {
    fail(from->folder.string(), ": this run has the tokenizer '", tokenizer->kind(), "', not '",
         config.tokenizer, "'");
  }
  return tokenizer;
}

// Part of the tokens' name in a cache. A larger number where the same text and the same tokenizer
// give other tokens than before: from 1 on, pieces in the middle of a text have no mark before
// them.
constexpr uint64_t kWayToTokenize = 1;
// The same of conversations: from 1 on, a message may say that it is not trained.
constexpr uint64_t kWayToWrite = 1;

TokenizeOptions options_for(const DataSource& source, const TrainConfig& config,
                            const Tokenizer* tokenizer, const ChatTemplate* chat,
                            Tokenized tokenized) {
  TokenizeOptions options{
      .documents = {.tokenizer = tokenizer, .chat = chat, .skip_bad = config.skip_bad},
      .cache = config.cache,
      .threads = num_threads()};
  const int64_t held = tokenized == Tokenized::kOnce ? kHeldBytesOfRanks : kHeldBytes;
  if (config.cache.empty() && bytes_to_tokenize(source) > held) {
    options.cache = fs::absolute(config.out).parent_path() / "tokens";
  }
  if (tokenizer) {
    options.documents_hash = hash_of(tokenizer->to_json().dump(), kWayToTokenize);
    options.border = tokenizer->end_of_text();
  }
  if (chat) options.documents_hash = hash_of(chat->text(), options.documents_hash + kWayToWrite);
  if (config.end_of_text >= 0) options.border = static_cast<int32_t>(config.end_of_text);
  return options;
}

TokenizedSource tokens_of(const DataSource& source, TokenizeOptions options) {
  const int64_t bytes = bytes_to_tokenize(source);
  constexpr int64_t kMiB = int64_t{1} << 20;
  const TokenizedSource made = [&] {
    Activity activity(Progress{.what = "tokenizing " + source.said, .unit = "MiB"});
    options.told = [&](int64_t read) { activity.at(std::min(read, bytes) / kMiB, bytes / kMiB); };
    return tokenize_source(source, options);
  }();
  if (made.bad_lines > 0) {
    note_once(fmt::format("{}: {} broken lines were left out", source.said, made.bad_lines));
  }
  return made;
}

// What a source of the corpus was made of: one source of the user's, or all that have no weight.
struct MadeOf {
  DataSource source;
  TokenizeOptions options;
  int64_t tokens;
};

std::vector<DocumentPlace> documents_in(std::span<const MadeOf> parts,
                                        std::span<const int64_t> tokens) {
  std::vector<DocumentPlace> found;
  int64_t before = 0;
  for (const MadeOf& part : parts) {
    std::vector<int64_t> here;
    while (found.size() + here.size() < tokens.size() &&
           tokens[found.size() + here.size()] < before + part.tokens) {
      here.push_back(tokens[found.size() + here.size()] - before);
    }
    before += part.tokens;
    const auto places = find_documents(part.source, part.options, here);
    found.insert(found.end(), places.begin(), places.end());
  }
  found.resize(tokens.size());
  return found;
}

}  // namespace

// A folder's rows of tables stand for the ids of its own tokenizer.
static void compare_tokenizers(const Tokenizer& asked, const TrainConfig& config,
                               const std::string& weights, std::vector<std::string>& doubts) {
  std::unique_ptr<Tokenizer> own;
  try {
    own = load_tokenizer(weights);
  } catch (const Error&) {
    return;  // the folder has none, or none that is read here
  }
  if (asked.to_json() == own->to_json()) return;
  const int64_t both = std::min(asked.vocab_size(), own->vocab_size());
  int64_t others = 0;
  const auto text_of = [](const Tokenizer& tokenizer, int64_t id) {
    try {
      return std::optional(tokenizer.bytes_of(static_cast<int32_t>(id), false));
    } catch (const Error&) {
      return std::optional<std::string>();  // the id is nobody's
    }
  };
  for (int64_t id = 0; id < both; ++id) others += text_of(asked, id) != text_of(*own, id);
  if (others == 0 && asked.vocab_size() == own->vocab_size()) return;
  doubts.push_back(fmt::format(
      "--tokenizer {}: it is not the tokenizer of {}, by whose ids the weights were trained: {} of "
      "{} ids stand for other texts, and it has {} ids where the folder's has {}",
      config.tokenizer, weights, with_commas(others), with_commas(both),
      with_commas(asked.vocab_size()), with_commas(own->vocab_size())));
}

// Tables and lists are read as any text is, which is seldom meant.
static void tell_what_is_read_as_text(const std::vector<DataSource>& sources) {
  for (const DataSource& source : sources) {
    for (const DataFile& file : source.files) {
      const std::string ending = without_compression(file.path).extension().string();
      if (ending != ".csv" && ending != ".tsv" && ending != ".json") continue;
      note_once(file.path.string() +
                ": it is read as plain text, with all its marks; a .jsonl file has a document a "
                "line, as {\"text\": \"...\"}");
    }
  }
}

RunData read_data(const TrainConfig& config, const std::optional<SavePaths>& trained_before,
                  const std::string& weights, const std::optional<std::string>& wanted_print,
                  Tokenized tokenized) {
  const std::vector<DataSource> sources = find_sources(config.data);
  tell_what_is_read_as_text(sources);
  RunData data{.packing = packing_of(config.packing, sources)};
  const std::string& name = sources[0].said;
  if (any_file(sources, DataKind::kFields)) {
    auto fields = std::make_unique<FieldsCorpus>(name, config.val_fraction);
    data.print = hash_text(fields->hash());
    data.corpus = std::move(fields);
    data.fields = true;
    if (trained_before) data.tokenizer = load_tokenizer(trained_before->tokenizer());
  } else {
    data.print = hash_text(hash_of_sources(sources));
  }
  if (wanted_print && !is_print_of(*wanted_print, data.print, sources)) {
    fail(name, data.fields ? ": these data have" : ": this text has",
         " changed since the run began; say --data FILE to go on anyway");
  }
  if (data.fields) return data;

  std::shared_ptr<const ChatTemplate> chat;
  if (!config.chat_template.empty()) {
    chat = std::make_shared<const ChatTemplate>(find_chat_template(config.chat_template));
  }
  data.tokenizer = tokenizer_for(config, trained_before, weights, sources, chat.get());
  if (data.tokenizer && !trained_before && !weights.empty() &&
      !learns_tokenizer(config.tokenizer)) {
    compare_tokenizers(*data.tokenizer, config, weights, data.doubts);
  }
  if (chat && data.tokenizer) {
    const std::string folder = trained_before ? trained_before->folder.string() : weights;
    const std::vector<std::string> more = doubts_about_template(*chat, *data.tokenizer, folder);
    data.doubts.insert(data.doubts.end(), more.begin(), more.end());
  }
  std::vector<TextCorpus::Part> parts;
  std::vector<std::vector<MadeOf>> made_of;
  for (const DataSource& source : sources) {
    const TokenizeOptions options =
        options_for(source, config, data.tokenizer.get(), chat.get(), tokenized);
    TokenStream tokens = tokens_of(source, options).tokens;
    // Without weights all sources are one, so that an epoch has each sample once.
    if (source.weight || parts.empty()) made_of.emplace_back();
    made_of.back().push_back({source, options, tokens.size()});
    if (source.weight || parts.empty()) {
      parts.push_back({source.said, std::move(tokens), source.weight.value_or(1)});
    } else {
      parts[0].tokens.add(tokens);
    }
  }
  data.documents = [made_of = std::move(made_of), chat](size_t source,
                                                        std::span<const int64_t> tokens) {
    return documents_in(made_of[source],
                        tokens);  // `chat` lives as long as the options that use it
  };
  data.corpus = std::make_unique<TextCorpus>(std::move(parts), config.val_fraction);
  return data;
}

}  // namespace adjoint
