// adjoint tokenizer: learns a tokenizer, and shows what one makes of a text.
#include "data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "base/activity.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/answer.h"
#include "cli/command.h"
#include "data/bpe_train.h"
#include "device/parallel.h"

namespace adjoint {

namespace {

using nlohmann::json;

struct TokenizerFlags {
  std::string tokenizer, file, text;
  bool json = false, specials = false, frame = false;
  // train
  std::vector<std::string> data;
  std::string out, pattern = "gpt2";
  std::vector<std::string> special = {"<|endoftext|>"};
  int64_t vocab = 32000, least_count = 2, threads = 0;
};

// A folder, a file, or the one of train's own that needs no text to learn from.
std::unique_ptr<Tokenizer> tokenizer_named(const std::string& name) {
  if (name == "byte") return make_tokenizer(name, "", 0);
  if (learns_tokenizer(name)) {
    fail("--tokenizer ", name,
         ": a run learns it from its text; give the --out folder of that run");
  }
  return load_tokenizer(name);
}

std::string input_of(const TokenizerFlags& flags) {
  if (!flags.text.empty()) return flags.text;
  if (!flags.file.empty()) return read_file(flags.file);
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

json parsed_line(const std::string& line, size_t number, const char* wanted) {
  json value = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded())
    fail("line ", number, ": wanted ", wanted, " as JSON, found '", line.substr(0, 60), "'");
  return value;
}

template <class Visit>
void for_each_input_line(const std::string& text, const Visit& visit) {
  std::istringstream lines(text);
  size_t number = 1;
  for (std::string line; std::getline(lines, line); ++number) visit(line, number);
}

std::vector<int32_t> tokens_of(const Tokenizer& tokenizer, std::string_view text,
                               const TokenizerFlags& flags) {
  std::vector<int32_t> tokens =
      flags.specials ? tokenizer.encode_with_specials(text) : tokenizer.encode(text);
  if (!flags.frame) return tokens;
  const TextFrame frame = tokenizer.frame();
  tokens.insert(tokens.begin(), frame.before.begin(), frame.before.end());
  tokens.insert(tokens.end(), frame.after.begin(), frame.after.end());
  return tokens;
}

int run_encode(const TokenizerFlags& flags) {
  const auto tokenizer = tokenizer_named(flags.tokenizer);
  const std::string input = input_of(flags);
  if (!flags.json) {
    const std::vector<int32_t> tokens = tokens_of(*tokenizer, input, flags);
    std::cout << fmt::format("{}\n", fmt::join(tokens, " "));
    return kDone;
  }
  for_each_input_line(input, [&](const std::string& line, size_t number) {
    const json text = parsed_line(line, number, "a text");
    if (!text.is_string())
      fail("line ", number, ": wanted a text as JSON, found ", text.type_name());
    const auto tokens = tokens_of(*tokenizer, text.get_ref<const std::string&>(), flags);
    std::cout << fmt::format("[{}]\n", fmt::join(tokens, ","));
  });
  return kDone;
}

std::vector<int32_t> ids_of(const std::string& text, int64_t vocab) {
  std::vector<int32_t> ids;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    int32_t id = -1;
    const char* const end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, id);
    if (error != std::errc() || stop != end || id < 0 || id >= vocab) {
      fail("wanted ids from 0 to ", vocab - 1, " with blanks between them, found '", word, "'");
    }
    ids.push_back(id);
  }
  return ids;
}

int run_decode(const TokenizerFlags& flags) {
  const auto tokenizer = tokenizer_named(flags.tokenizer);
  const std::string input = input_of(flags);
  if (!flags.json) {
    std::cout << tokenizer->decode(ids_of(input, tokenizer->vocab_size()));
    return kDone;
  }
  for_each_input_line(input, [&](const std::string& line, size_t number) {
    const json ids = parsed_line(line, number, "a list of ids");
    const auto is_id = [](const json& id) { return id.is_number_unsigned() && id <= INT32_MAX; };
    if (!ids.is_array() || !std::all_of(ids.begin(), ids.end(), is_id)) {
      fail("line ", number, ": wanted a list of ids as JSON, found ", ids.type_name());
    }
    const json text = tokenizer->decode(ids.get<std::vector<int32_t>>());
    std::cout << text.dump(-1, ' ', false, json::error_handler_t::replace) << "\n";
  });
  return kDone;
}

int run_info(const TokenizerFlags& flags) {
  const auto tokenizer = tokenizer_named(flags.tokenizer);
  const auto end = tokenizer->end_of_text();
  const TextFrame frame = tokenizer->frame();
  const std::vector<SpecialToken> specials = tokenizer->special_tokens();
  if (flags.json) {
    json named = json::object();
    for (const SpecialToken& special : specials) named[special.name] = special.id;
    const json out = {{"kind", tokenizer->kind()},
                      {"vocab", tokenizer->vocab_size()},
                      {"end_of_text", end ? json(*end) : json()},
                      {"before", frame.before},
                      {"after", frame.after},
                      {"special_tokens", named}};
    return print_answer("tokenizer", out);
  }
  const auto named = [&](int32_t id) {
    const std::vector<int32_t> one = {id};
    return fmt::format("{} ({})", tokenizer->decode(one), id);
  };
  const auto all_named = [&](const std::vector<int32_t>& ids) {
    std::vector<std::string> names;
    for (const int32_t id : ids) names.push_back(named(id));
    return names.empty() ? std::string("none") : join(names, " ");
  };
  constexpr size_t shown = 8;  // some have hundreds in reserve
  std::vector<int32_t> first;
  for (size_t i = 0; i < specials.size() && i < shown; ++i) first.push_back(specials[i].id);
  std::cout << fmt::format("kind            {}\nvocabulary      {} tokens\n", tokenizer->kind(),
                           tokenizer->vocab_size());
  std::cout << "end of text     " << (end ? named(*end) : "none") << "\n";
  std::cout << "before a text   " << all_named(frame.before) << "\n";
  std::cout << "after a text    " << all_named(frame.after) << "\n";
  std::cout << "special tokens  " << all_named(first)
            << (specials.size() > shown ? fmt::format(" and {} more", specials.size() - shown) : "")
            << "\n";
  return kDone;
}

// As corpora are encoded: in pieces, one after another on one thread.
int run_speed(const TokenizerFlags& flags) {
  const auto tokenizer = tokenizer_named(flags.tokenizer);
  const std::string input = input_of(flags);
  if (input.empty()) fail("the text is empty, so there is nothing to encode");
  constexpr size_t kPiece = size_t{1} << 20;
  constexpr double kSeconds = 2;  // of all passes but the first, which fills caches
  const auto cpu_seconds = [] {
    timespec now = {};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  };
  size_t tokens = 0, bytes = 0;
  double begin = 0, seconds = 0;
  for (int pass = 0; seconds < kSeconds; ++pass) {
    if (pass == 1) begin = cpu_seconds(), bytes = 0;
    tokens = 0;
    for (size_t at = 0; at < input.size(); at += kPiece) {
      const std::string_view piece = std::string_view(input).substr(at, kPiece);
      tokens += tokenizer->encode(piece).size();
      bytes += piece.size();
    }
    if (pass > 0) seconds = cpu_seconds() - begin;
  }
  const double rate = static_cast<double>(bytes) / 1e6 / seconds;
  if (flags.json) {
    const json out = {{"bytes", input.size()}, {"tokens", tokens}, {"bytes_per_cpu_s", rate * 1e6}};
    return print_answer("tokenizer", out, -1);
  }
  std::cout << fmt::format("{:.1f} MB per CPU second: {} bytes are {} tokens\n", rate, input.size(),
                           tokens);
  return kDone;
}

std::string pattern_named(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [known, pattern] : kNamedPatterns) {
    if (name == known) return pattern;
    names.emplace_back(known);
  }
  fail("--pattern: there is no pattern '", name, "', only ", join(names, ", "),
       did_you_mean(name, names));
}

int run_train(const TokenizerFlags& flags) {
  if (flags.vocab < 256 || flags.vocab > 10'000'000) {
    fail("--vocab: wanted 256 to 10000000, found ", flags.vocab);
  }
  if (flags.least_count < 1) fail("--least-count: wanted 1 or more, found ", flags.least_count);
  use_threads(flags.threads);
  std::optional<Activity> activity(std::in_place,
                                   Progress{.what = "learning a tokenizer", .unit = "merges"});
  std::vector<std::string> texts;
  for (const std::string& file : flags.data) texts.push_back(read_file(file));
  size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  if (bytes == 0) fail("--data: the text is empty, so there is nothing to learn");
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const ByteLevelFile file = train_bpe(
      views, {.vocab = flags.vocab,
              .pattern = pattern_named(flags.pattern),
              .specials = flags.special,
              .least_count = flags.least_count,
              .threads = num_threads(),
              .told = [&](int64_t merges, int64_t wanted) { activity->at(merges, wanted); }});
  activity.reset();
  write_file_atomically(flags.out, byte_level_json(file));
  if (flags.json) {
    return print_answer("tokenizer",
                        {{"out", flags.out}, {"vocab", file.tokens.size()}, {"bytes", bytes}}, -1);
  }
  std::cout << fmt::format("{}: {} tokens of {} bytes\n", flags.out, file.tokens.size(), bytes);
  if (std::cmp_less(file.tokens.size(), flags.vocab)) {
    std::cout << fmt::format("fewer than {}: no other pair occurs {} times\n", flags.vocab,
                             flags.least_count);
  }
  return kDone;
}

CLI::App* add_tokenizer_command(CLI::App& parent, const char* name, const char* summary,
                                const std::shared_ptr<TokenizerFlags>& flags, Action& action,
                                int (*run)(const TokenizerFlags&)) {
  CLI::App* command = parent.add_subcommand(name, summary);
  command->callback([flags, run, &action] { action = [flags, run] { return run(*flags); }; });
  return command;
}

}  // namespace

void add_tokenizer(CLI::App& app, Action& action) {
  CLI::App* group = app.add_subcommand("tokenizer", "learn a tokenizer, or look at what one does");
  group->require_subcommand(1);
  group->footer(
      "A tokenizer is a folder, or a tokenizer.json, .model or .tiktoken file.\n"
      "Examples:\n"
      "  adjoint tokenizer train --data book.txt --vocab 8192 --out book.json\n"
      "  adjoint tokenizer encode --tokenizer book.json --text \"In the beginning\"");
  const auto flags = std::make_shared<TokenizerFlags>();
  CLI::App* train = add_tokenizer_command(*group, "train", "learn byte-level byte pairs", flags,
                                          action, run_train);
  train->add_option("--data", flags->data, "the texts to learn from")->required();
  train->add_option("--out", flags->out, "the tokenizer.json to write")->required();
  train->add_option("--vocab", flags->vocab, "tokens, special ones and 256 bytes among them")
      ->capture_default_str();
  train
      ->add_option("--pattern", flags->pattern,
                   "how texts are cut before pairs are counted: gpt2, llama3, qwen2 or o200k")
      ->capture_default_str();
  train->add_option("--special", flags->special, "special tokens, which get the first ids")
      ->capture_default_str();
  train->add_option("--least-count", flags->least_count, "a pair that occurs less is not merged")
      ->capture_default_str();
  train->add_option("--threads", flags->threads, "CPU threads; 0: as many as there are cores");
  train->footer("Example:\n  adjoint tokenizer train --data book.txt --vocab 8192 --out book.json");

  CLI::App* encode =
      add_tokenizer_command(*group, "encode", "the ids of a text", flags, action, run_encode);
  CLI::App* decode = add_tokenizer_command(*group, "decode", "the text of ids, with blanks between",
                                           flags, action, run_decode);
  CLI::App* info =
      add_tokenizer_command(*group, "info", "size and special tokens", flags, action, run_info);
  CLI::App* speed = add_tokenizer_command(*group, "speed", "how fast a text is encoded", flags,
                                          action, run_speed);
  for (CLI::App* command : {encode, decode, info, speed}) {
    command->add_option("--tokenizer", flags->tokenizer, "a folder, a file, or byte")->required();
  }
  for (CLI::App* command : {encode, decode, speed}) {
    command->add_option("file", flags->file, "the input; none: standard input");
    command->add_option("--text", flags->text, "the input itself");
  }
  encode->add_flag("--specials", flags->specials,
                   "names of special tokens in the text are those tokens");
  encode->add_flag("--frame", flags->frame, "with what the tokenizer puts around a text");
  train->add_flag("--json", flags->json, "as JSON");
  encode->add_flag("--json", flags->json, "a text per line as JSON; a list of ids for each");
  decode->add_flag("--json", flags->json, "a list of ids per line as JSON; a text for each");
  info->add_flag("--json", flags->json, "as JSON");
  speed->add_flag("--json", flags->json, "as JSON");
  encode->footer("Example:\n  adjoint tokenizer encode --tokenizer runs/book --text \"And God\"");
  decode->footer("Example:\n  adjoint tokenizer decode --tokenizer runs/book --text \"1 2 3\"");
  info->footer("Example:\n  adjoint tokenizer info --tokenizer runs/book");
  speed->footer("Example:\n  adjoint tokenizer speed --tokenizer gpt2.tiktoken book.txt");
}

}  // namespace adjoint
