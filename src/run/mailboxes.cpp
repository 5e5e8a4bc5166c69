#include "run/mailboxes.h"

#include <cstring>

namespace adjoint {

void Mailboxes::send(Value v, const Letter& letter) {
  const auto [found, fresh] = boxes_.try_emplace(v);
  Mailbox& box = found->second;
  if (fresh) {
    for (Buffer& place : box.places) place = Buffer(letter.room, Memory::kPinned);
    box.clock = std::make_unique<GpuClock>(box.places.size() + 1);
  }
  const size_t gone = box.places.size();  // the mark at which a landing is free again
  const size_t i = box.next++ % box.places.size();
  box.clock->wait(i);
  std::memcpy(box.places[i].data(), letter.from, letter.size.count);
  if (!letter.landing) {
    work_->copy(letter.to, box.places[i].data(), letter.size);
    box.clock->mark(i, *work_);
    return;
  }
  if (!arrivals_) arrivals_ = std::make_unique<GpuStream>();
  arrivals_->wait_for(*box.clock, gone);
  arrivals_->copy(letter.landing, box.places[i].data(), letter.size);
  box.clock->mark(i, *arrivals_);
  work_->wait_for(*box.clock, i);
  work_->copy(letter.to, letter.landing, letter.size);
  box.clock->mark(gone, *work_);
}

}  // namespace adjoint
