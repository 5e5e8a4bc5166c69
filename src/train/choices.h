// Questions with several answers, of which a model chooses the likeliest.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "train/evaluated_model.h"

namespace adjoint {

struct Question {
  std::string prompt;
  std::vector<std::string> choices = {};  // two or more, none empty
  int64_t answer = 0;                     // which one is right, from 0
  std::string place = {};                 // file and line, for complaints
};

// Of JSON lines {"prompt": "...", "choices": ["...", ...], "answer": ...}; the answer is a number
// from 0 or one of the choices. An Error names the line.
std::vector<Question> read_questions(const std::filesystem::path& file);

// How far work is: done, of how many, and what is done.
using OnProgress = std::function<void(int64_t done, int64_t of, const std::string& what)>;

// For every choice of every question the log probability of its tokens behind the prompt's. A
// choice begins where the tokens of prompt and choice together part from those of the prompt alone,
// so a token that has the end of the prompt and the beginning of the choice is the choice's. A
// prompt that is too long for the model loses its beginning.
std::vector<std::vector<double>> choice_likelihoods(EvaluatedModel& model,
                                                    const std::vector<Question>& questions,
                                                    const OnProgress& told = nullptr);

struct ChoiceScores {
  int64_t questions = 0;
  int64_t right = 0;             // questions whose answer is the likeliest choice
  int64_t right_normalized = 0;  // the same by log probability per byte of a choice
  double accuracy() const { return static_cast<double>(right) / questions; }
  double accuracy_normalized() const { return static_cast<double>(right_normalized) / questions; }
};
// Of choices that are alike, the first is chosen.
ChoiceScores score(const std::vector<Question>& questions,
                   const std::vector<std::vector<double>>& likelihoods);

}  // namespace adjoint
