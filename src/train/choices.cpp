#include "train/choices.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/note.h"
#include "data/documents.h"
#include "functors/evaluation.h"
#include "train/cached_model.h"
#include "train/fed_inputs.h"

namespace adjoint {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

const json& wanted_entry(const json& object, const char* name, const char* kind) {
  const auto found = object.find(name);
  if (found == object.end()) fail("wanted ", kind, " as \"", name, "\", found none");
  return *found;
}

std::string wanted_text(const json& value, const std::string& what) {
  if (!value.is_string()) fail("wanted a text as ", what, ", found ", value.type_name());
  return value.get<std::string>();
}

int64_t answer_of(const json& answer, const std::vector<std::string>& choices) {
  const auto count = static_cast<int64_t>(choices.size());
  if (answer.is_string()) {
    const auto found = std::find(choices.begin(), choices.end(), answer.get<std::string>());
    if (found == choices.end())
      fail("wanted one of the choices as \"answer\", found ", answer.dump());
    return found - choices.begin();
  }
  if (!answer.is_number_integer() || answer < 0 || answer >= count) {
    fail("wanted a choice or its number, 0 to ", count - 1, ", as \"answer\", found ",
         answer.dump());
  }
  return answer.get<int64_t>();
}

Question question_of(std::string_view line) {
  const json value = parse_json(line);
  if (!value.is_object()) {
    fail("wanted {\"prompt\", \"choices\", \"answer\"}, found ", value.type_name());
  }
  Question question{.prompt = wanted_text(wanted_entry(value, "prompt", "a text"), "\"prompt\"")};
  const json& choices = wanted_entry(value, "choices", "a list of texts");
  if (!choices.is_array()) {
    fail("wanted a list of texts as \"choices\", found ", choices.type_name());
  }
  if (choices.size() < 2) fail("wanted two choices or more, found ", choices.size());
  for (const json& choice : choices) {
    const std::string what = "choice " + std::to_string(question.choices.size());
    question.choices.push_back(wanted_text(choice, what));
    if (question.choices.back().empty()) fail("wanted a text as ", what, ", found an empty one");
  }
  question.answer =
      answer_of(wanted_entry(value, "answer", "a choice or its number"), question.choices);
  return question;
}

// A prompt and a choice as tokens.
struct PromptedChoice {
  std::vector<int32_t> tokens;
  int64_t first = 0;  // token of the choice; there is one before it
  size_t question = 0, choice = 0;

  // What the model reads: all but the last.
  int64_t read() const { return static_cast<int64_t>(tokens.size()) - 1; }
};

PromptedChoice prompted_choice(const Question& question, size_t choice,
                               const Tokenizer& tokenizer) {
  const std::vector<int32_t> prompt = tokenizer.encode(question.prompt);
  const std::vector<int32_t> both = tokenizer.encode(question.prompt + question.choices[choice]);
  const int64_t common =
      std::mismatch(prompt.begin(), prompt.end(), both.begin(), both.end()).first - prompt.begin();
  if (common == static_cast<int64_t>(both.size())) {
    fail("choice ", choice, " has no token of its own");
  }
  PromptedChoice made{.tokens = tokenizer.frame().before, .choice = choice};
  // Behind nothing a model is shown the token that stands between documents.
  if (common == 0 && made.tokens.empty()) {
    const auto border = tokenizer.end_of_text();
    if (!border) fail("wanted a prompt of one token or more before choice ", choice);
    made.tokens = {*border};
  }
  made.first = static_cast<int64_t>(made.tokens.size()) + common;
  made.tokens.insert(made.tokens.end(), both.begin(), both.end());
  return made;
}

// Drops the beginning of what the model has no room for.
void shorten(PromptedChoice& candidate, int64_t context) {
  const int64_t excess = candidate.read() - context;
  if (excess <= 0) return;
  if (excess >= candidate.first) {
    fail("choice ", candidate.choice, " has ",
         static_cast<int64_t>(candidate.tokens.size()) - candidate.first,
         " tokens, and the model sees ", context);
  }
  note_once("prompts that are too long for the model lose their beginning");
  candidate.tokens.erase(candidate.tokens.begin(), candidate.tokens.begin() + excess);
  candidate.first -= excess;
}

double log_probability(const std::vector<float>& logits, int32_t token) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return logits[token] - most - std::log(sum);
}

size_t likeliest(const std::vector<double>& scores) {
  return std::max_element(scores.begin(), scores.end()) - scores.begin();
}

}  // namespace

std::vector<Question> read_questions(const fs::path& file) {
  const std::vector<DataFile> files = {{.path = file, .kind = DataKind::kJsonLines}};
  std::vector<Question> questions;
  ChunkReader reader(files);
  while (const auto chunk = reader.next()) {
    int64_t number = chunk->begin;
    const std::string_view bytes = chunk->bytes;
    for (size_t at = 0; at < bytes.size();) {
      const size_t end = std::min(bytes.find('\n', at), bytes.size());
      const std::string_view line = bytes.substr(at, end - at);
      at = end + 1;
      const std::string place = file.string() + ": line " + std::to_string(++number);
      if (line.find_first_not_of(" \t\r") == line.npos) continue;
      try {
        questions.push_back(question_of(line));
        questions.back().place = place;
      } catch (const Error& error) {
        fail(place, ": ", error.what());
      }
    }
  }
  if (questions.empty()) {
    fail(file.string(), ": wanted {\"prompt\", \"choices\", \"answer\"} on each line, found none");
  }
  return questions;
}

std::vector<std::vector<double>> choice_likelihoods(EvaluatedModel& model,
                                                    const std::vector<Question>& questions,
                                                    const OnProgress& told) {
  std::vector<PromptedChoice> candidates;
  std::vector<std::vector<double>> likelihoods;
  int64_t longest = 1;
  for (const Question& question : questions) {
    likelihoods.emplace_back(question.choices.size(), 0.0);
    for (size_t choice = 0; choice < question.choices.size(); ++choice) {
      try {
        candidates.push_back(prompted_choice(question, choice, model.tokenizer()));
        shorten(candidates.back(), model.context());
      } catch (const Error& error) {
        fail(question.place, ": ", error.what());
      }
      candidates.back().question = likelihoods.size() - 1;
      longest = std::max(longest, candidates.back().read());
    }
  }
  const auto count = static_cast<int64_t>(candidates.size());
  const int64_t batch = std::min(model.batch(), count);
  const auto run = model.load(logits_of(model.model().forward(batch, longest)));
  const Scheme& s = run->scheme();
  const Value tokens_in = input_named(s, "tokens");
  const int64_t vocab = s[s.outputs[0]].type.dim(-1);
  std::vector<int32_t> tokens(batch * longest);
  for (int64_t begin = 0; begin < count; begin += batch) {
    const int64_t rows = std::min(batch, count - begin);
    std::fill(tokens.begin(), tokens.end(), 0);  // what is behind a text changes nothing before it
    for (int64_t row = 0; row < rows; ++row) {
      const PromptedChoice& c = candidates[begin + row];
      std::copy_n(c.tokens.begin(), c.read(), tokens.begin() + row * longest);
    }
    for (const Value in : s.inputs) {
      if (s[in].role == Role::kInput && in != tokens_in) run->clear(in);
    }
    run->write(tokens_in, tokens.data());
    run->step();
    for (int64_t row = 0; row < rows; ++row) {
      const PromptedChoice& c = candidates[begin + row];
      for (int64_t i = c.first; i <= c.read(); ++i) {
        const auto logits = row_values(*run, s.outputs[0], row * longest + i - 1, vocab);
        likelihoods[c.question][c.choice] += log_probability(logits, c.tokens[i]);
      }
      if (!std::isnan(likelihoods[c.question][c.choice])) continue;
      fail(questions[c.question].place, ": the likelihood of choice ", c.choice, " is no number",
           EvaluatedModel::parameter_not_finite(*run));
    }
    if (told) told(begin + rows, count, "choices");
  }
  return likelihoods;
}

ChoiceScores score(const std::vector<Question>& questions,
                   const std::vector<std::vector<double>>& likelihoods) {
  ChoiceScores scores{.questions = static_cast<int64_t>(questions.size())};
  for (size_t i = 0; i < questions.size(); ++i) {
    const Question& question = questions[i];
    const auto answer = static_cast<size_t>(question.answer);
    std::vector<double> per_byte = likelihoods[i];
    for (size_t c = 0; c < per_byte.size(); ++c) {
      per_byte[c] /= static_cast<double>(question.choices[c].size());
    }
    scores.right += likeliest(likelihoods[i]) == answer;
    scores.right_normalized += likeliest(per_byte) == answer;
  }
  return scores;
}

}  // namespace adjoint
