// The training loop: a step, a rate, a batch; evaluation, metrics and saves in between.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <ostream>

#include "comm/seat.h"
#include "data/batches.h"
#include "data/corpus.h"
#include "data/tokenizer.h"
#include "train/bound_model.h"
#include "train/data_position.h"
#include "train/fed_inputs.h"
#include "train/resolve_config.h"
#include "train/run_data.h"
#include "train/save.h"
#include "train/schedule.h"
#include "train/spikes.h"
#include "train/stack_texts.h"

namespace adjoint {

struct TrainResult {
  int64_t step = 0;  // of the run
  // Of the last step and the last evaluation; none where no target was counted (all were ignored).
  std::optional<double> loss = {}, val_loss = {};
  bool interrupted = false;
  std::string ended_by = {};  // --patience or --max-minutes, as a sentence; else nothing
  Bytes predicted = {0};
};

class Saver;

class Trainer {
 public:
  // Reads the data, binds and plans the model, fills the arena, and only then writes to the folder:
  // everything that can be refused is refused before that.
  // Of several ranks each has a trainer, and all do the same steps; the first one alone writes.
  explicit Trainer(ResolvedConfig resolved, std::optional<Communicator> world = std::nullopt);
  ~Trainer();

  // Trains until the last step, --stop-after, or until `stop` becomes true; saves in every case.
  // Prints evaluations to `log`, if there is one.
  TrainResult train(const std::atomic<bool>& stop, std::ostream* log = nullptr);

  // Mean loss on the validation part; nothing if `stop` interrupted it or no target was counted.
  std::optional<double> evaluate(const std::atomic<bool>& stop);

  const TrainConfig& config() const { return config_; }
  const BoundModel& model() const { return *model_; }
  const Run& run() const { return *run_; }
  // Memory that saving in the background needs besides the arenas; 0: nothing is saved in the
  // background.
  Bytes copied_to_save() const;
  int64_t first_step() const { return first_step_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const Corpus& corpus() const { return *corpus_; }
  // What a resumed run could not take over, or reads otherwise than before.
  const std::vector<std::string>& notes() const { return notes_; }
  // Rules of the stack that found nothing in this model, with their places.
  const std::vector<std::string>& idle_rules() const { return idle_rules_; }

 private:
  bool writes() const { return !world_ || world_->rank() == 0; }
  // What the first rank says, so that all ranks take the same way.
  bool agreed(bool mine) const;
  void follow(Run& run);
  void fit_stack(const Scheme& forward);  // sets the config's stack
  void check_learns(const TrainingPart& part, bool fields) const;
  std::vector<DocumentPlace> silent_places(const TrainingPart& part) const;  // of the first of them
  void check_folder();
  void check_disk() const;
  void take_lock();
  void check_unheld() const;
  void load_base();
  void check_saved_positions() const;
  void load_resumed();  // all of the folder's save that this run has
  // Which batches a resumed run reads, whose samples or batches may have another size than before.
  void set_position(const Corpus& corpus, std::span<const FieldWish> wishes, Sampling sampling);
  int64_t before(const char* option, int64_t otherwise) const;  // of a resumed run
  void begin_folder();
  void set_control(int64_t step);
  // Writes what the samples of a step were, for people to look at; gives their documents.
  std::vector<DocumentPlace> write_samples_of(const Spike& spike);
  std::vector<std::vector<DocumentPlace>> documents_of(int64_t step) const;  // by row
  // The run ends here: what there is is saved, and the Error says what was wrong.
  [[noreturn]] void stop_at(const Spike& spike, int64_t step, int skipped, Saver& saver);
  // As it was when the folder's save was made, but for the batch of this spike. Gives the step.
  int64_t go_back_of(const Spike& spike, Saver& saver);
  nlohmann::json weight_norms();  // by role

  std::optional<Communicator> world_;  // none: one rank
  std::unique_ptr<Seat> seat_;
  TrainConfig config_;
  SavePaths paths_;
  std::unique_ptr<FolderLock> lock_;
  std::string model_print_, data_print_;
  nlohmann::json before_;  // the options of a resumed run, as they were; else null
  bool unsettled_ = false, taken_over_ = false;  // the folder's save is of other options than ours
  bool threads_shared_ = true;                   // nobody said how many threads
  int64_t printed_with_ = 0;  // tokens per sample, by which the run's saves are known
  nlohmann::json made_of_;    // train/provenance.h
  std::vector<std::string> notes_;
  std::optional<std::string> asked_stack_;     // before --fit chose
  std::string saved_stack_, saved_optimizer_;  // as the run's folder keeps them
  std::string optimizer_text_;                 // "": it is one of ours
  StackTexts stack_texts_;                     // what the stack took from files
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Corpus> corpus_;
  std::unique_ptr<BoundModel> model_;
  std::unique_ptr<Batches> batches_, val_batches_;
  decltype(RunData::documents) documents_;  // null: of fields nobody knows
  std::unique_ptr<Run> run_, eval_;
  std::unique_ptr<Run> weights_;  // sums of their squares by role; null: nobody asks
  std::map<std::string, std::vector<Value>> weights_by_role_;  // of several ranks, the same
  RateSchedule schedule_;
  std::vector<std::string> idle_rules_;
  Bytes workspace_cap_ = kNoCap;  // saved with the run, because the bits of products depend on it
  Bytes room_to_save_ = kNoCap;   // for a copy of the state, besides the arenas
  int64_t first_step_ = 0;
  int64_t at_step_ = 0;  // that is running, counted from 1
  Value rate_ = -1, counter_ = -1;
};

}  // namespace adjoint
