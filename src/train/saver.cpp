#include "train/saver.h"

#include <fmt/format.h>

#include <new>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "comm/wire.h"
#include "device/limits.h"

namespace adjoint {

Saver::Saver(SavePaths paths, const Run& run, std::string model, int64_t saved_at, Bytes room,
             const std::optional<Communicator>& group)
    : paths_(std::move(paths)),
      run_(run),
      model_(std::move(model)),
      saved_at_(saved_at),
      writing_(saved_at),
      room_(room),
      copies_(group || needs_copy(run)),
      copy_(run, group) {}

Saver::~Saver() = default;

template <class F>
void Saver::tell_what_stays(const F& may_fail) {
  const auto told = [&](const std::exception& e) -> std::string {
    const int64_t before = std::exchange(saved_at_, step_to_resume(paths_).value_or(-1));
    writing_ = saved_at_;
    if (saved_at_ != before && saved_at_ >= 0) return e.what();  // commit_save reported it
    if (before < 0) return fmt::format("{}; nothing was saved yet", e.what());
    return fmt::format("{}; the save of step {} {}", e.what(), before,
                       saved_at_ == before ? "stays" : "can no longer be opened");
  };
  try {
    may_fail();
  } catch (const Aborted&) {  // another rank has told
    throw;
  } catch (const Error& e) {
    throw Error(told(e));
  } catch (const MachineError& e) {  // for example a full disk
    throw MachineError(told(e));
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
  tell_what_stays([&] {
    if (copies_) copy_.take();
    copies_ ? copy_.save(paths_, step, model_) : save_state(paths_, run_, step, model_);
  });
  saved_at_ = writing_ = step;
}

bool Saver::has_room() const {
  // A save of several ranks' needs one anyway.
  if (copy_.held() || (copies_ && !run_.on_gpu())) return true;
  const auto available = available_memory();
  // Twice, because the written file passes through memory as well.
  return copy_.size() <= room_ && (!available || 2 * copy_.size() <= available->bytes);
}

void Saver::save_behind(int64_t step) {
  wait();
  if (!has_room()) return save(step);
  try {
    tell_what_stays([&] { copy_.take(); });
    background_.start([this, step] { copy_.save(paths_, step, model_); });
  } catch (const std::bad_alloc&) {
    return save(step);
  } catch (const std::system_error&) {  // no thread could be started
    return save(step);
  }
  writing_ = step;
}

}  // namespace adjoint
