// The saves of a run that goes on: the state is copied between two steps, which takes as long as
// memory takes, and checksummed, written and flushed to disk behind the next ones. Where there is
// no memory for a copy, a save is waited for. A save that failed stops the run at its next step.
#pragma once
#include <optional>

#include "base/background.h"
#include "train/save.h"

namespace adjoint {

class Saver {
 public:
  // `saved_at` is the step of the save that the folder holds, -1 when it holds none; `room` what a
  // copy may take at most. The run must outlive this.
  Saver(SavePaths paths, const Run& run, std::string model, int64_t saved_at, Bytes room);
  ~Saver();  // waits for what is being written

  // Returns when the step is on disk.
  void save(int64_t step);
  // Returns when the run may go on: `save` behind it. Waits for the save before, if that one still
  // is being written.
  void save_behind(int64_t step);
  void check();  // whether the last save failed; an Error that says which one stays
  void wait();   // the same, when it has ended

 private:
  bool has_room() const;
  template <class F>
  void tell_what_stays(const F& may_fail);

  SavePaths paths_;
  const Run& run_;
  std::string model_;
  int64_t saved_at_;  // on disk
  int64_t writing_;   // or the step that is being written
  Bytes room_;
  StateCopy copy_;
  Background background_;  // last: it reads the rest until it ends
};

}  // namespace adjoint
