// What can hardly be meant: settings that a run can go on with, and that its user should know of.
// Each is one sentence; none refuses anything.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "train/config.h"

namespace adjoint {

// Of the options that were `said`, by themselves and beside each other.
std::vector<std::string> doubts_about(const TrainConfig& config, const std::set<std::string>& said);

// More threads than there are cores; `ranks` of them share this machine.
std::vector<std::string> doubts_about_threads(int64_t threads, int64_t ranks = 1);

// A batch that needs more tokens than there are.
std::vector<std::string> doubts_about_data(int64_t batch, int64_t context, int64_t tokens);

// Documents in which nothing is learned, of which `places` are the first.
std::vector<std::string> doubts_about_silence(const TrainingPart& part,
                                              const std::vector<DocumentPlace>& places);

// Documents that a sample of so many tokens does not hold; that is no doubt, but worth knowing.
std::vector<std::string> notes_about_length(const TrainingPart& part, int64_t context);

// A template whose marks this tokenizer spells out as text, or one that writes otherwise than the
// conversations of the model's folder were written; "": there is no folder.
std::vector<std::string> doubts_about_template(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                               const std::string& folder);

// Parameters that begin at random and are mostly not trained.
std::vector<std::string> doubts_about_frozen(int64_t parameters, int64_t trained);

// An option that differs between a run's save and how it goes on; "set dropout" is a number of the
// model.
struct ChangedOption {
  std::string name, was, is;
  std::string in_words() const { return name + ": " + was + " -> " + is; }  // lr: 0.001 -> 0.002
};

// `was` and `is` are options as run.json holds them. Where only one of them sets a number of the
// model, the other has `own`, the model's.
std::vector<ChangedOption> changed_options(const nlohmann::json& was, const nlohmann::json& is,
                                           const std::map<std::string, double>& own = {});

// What is said of them, when a run goes on after so many steps. They matter where parameters depend
// on them: steps and epochs do where the steps so far had other rates than the schedule now says.
struct ResumedDoubt {
  std::string sentence;
  bool matters = true;
};
std::vector<ResumedDoubt> doubts_of_resuming(const std::vector<ChangedOption>& changed,
                                             const TrainConfig& was, const TrainConfig& is,
                                             int64_t steps_done);

}  // namespace adjoint
