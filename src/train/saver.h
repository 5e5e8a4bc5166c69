// Saves while a run goes on: the state is copied between two steps, at the speed of memory, and
// hashed, written and flushed to disk while the next steps run. Without memory for a copy, the run
// waits for the save. A failed save stops the run at its next step.
#pragma once
#include <optional>

#include "base/background.h"
#include "train/save.h"
#include "train/state_copy.h"

namespace adjoint {

class Saver {
 public:
  // `saved_at` is the step of the folder's save, or -1; `room` is the largest size of a copy. The
  // run must outlive this object. Of several ranks all have one and call it alike: the ranks of
  // `group` write a save together (train/state_copy.h).
  Saver(SavePaths paths, const Run& run, std::string model, int64_t saved_at, Bytes room,
        const std::optional<Communicator>& group = std::nullopt);
  ~Saver();  // waits for a save that is being written

  // Returns when the step is on disk.
  void save(int64_t step);
  // Starts a save, and returns when the run may go on. Waits for the previous save, if it is still
  // being written.
  void save_behind(int64_t step);
  void check();  // throws an Error if the last save failed, and says which save is still there
  void wait();   // waits for the current save, then checks
  int64_t saved_at() const { return saved_at_; }  // after wait(): the step on disk, or -1

 private:
  bool has_room() const;
  template <class F>
  void tell_what_stays(const F& may_fail);

  SavePaths paths_;
  const Run& run_;
  std::string model_;
  int64_t saved_at_;  // on disk
  int64_t writing_;   // the step that is being written
  Bytes room_;
  bool copies_;
  StateCopy copy_;
  Background background_;  // last member: it uses the others until it ends
};

}  // namespace adjoint
