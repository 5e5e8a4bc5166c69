#include "train/saver.h"

#include <fmt/format.h>

#include "base/error.h"
#include "device/buffer.h"

namespace adjoint {

Saver::Saver(SavePaths paths, const Run& run, std::string model, int64_t saved_at, Bytes room)
    : paths_(std::move(paths)),
      run_(run),
      model_(std::move(model)),
      saved_at_(saved_at),
      writing_(saved_at),
      room_(room),
      copy_(run) {}

Saver::~Saver() = default;

template <class F>
void Saver::tell_what_stays(const F& may_fail) {
  try {
    may_fail();
  } catch (const Error& e) {
    writing_ = saved_at_;
    fail(e.what(), saved_at_ >= 0 ? fmt::format("; the save of step {} stays", saved_at_)
                                  : "; nothing was saved yet");
  }
}

void Saver::wait() {
  tell_what_stays([&] { background_.wait(); });
  saved_at_ = writing_;
}

void Saver::check() {
  tell_what_stays([&] { background_.check(); });
}

void Saver::save(int64_t step) {
  wait();
  if (saved_at_ == step) return;
  tell_what_stays([&] { save_state(paths_, run_, step, model_); });
  saved_at_ = writing_ = step;
}

bool Saver::has_room() const {
  if (copy_.held()) return true;
  const auto available = available_memory();
  return copy_.size() <= room_ && (!available || copy_.size() <= *available);
}

void Saver::save_behind(int64_t step) {
  wait();
  if (!has_room()) return save(step);
  tell_what_stays([&] { copy_.take(); });
  writing_ = step;
  background_.start([this, step] { copy_.save(paths_, step, model_); });
}

}  // namespace adjoint
