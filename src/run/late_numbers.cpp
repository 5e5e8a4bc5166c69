#include "run/late_numbers.h"

#include "base/error.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {
constexpr int64_t kNumber = 8;  // bytes: the widest
}

LateNumbers::LateNumbers(Run& run, std::vector<Value> which) : run_(run), which_(std::move(which)) {
  if (!run.on_gpu()) return;
  places_ = Buffer({static_cast<int64_t>(kPlaces * which_.size()) * kNumber}, Memory::kPinned);
  clock_ = std::make_unique<GpuClock>(kPlaces);
}

void LateNumbers::note() {
  CHECK(waiting() < kPlaces, "what was noted is taken before its place is used again");
  if (!run_.on_gpu()) {
    there_.emplace_back();
    for (const Value v : which_) there_.back().push_back(run_.number(v));
  } else {
    const size_t place = noted_ % kPlaces;
    std::byte* to = places_.data() + place * which_.size() * kNumber;
    for (const Value v : which_) {
      run_.stream()->copy(to, run_.data(v), size_of(run_.scheme()[v].type.dtype));
      to += kNumber;
    }
    clock_->mark(place, *run_.stream());
  }
  ++noted_;
}

std::vector<double> LateNumbers::take() {
  CHECK(waiting() > 0, "something was noted");
  const size_t place = taken_++ % kPlaces;
  if (!run_.on_gpu()) {
    std::vector<double> numbers = std::move(there_.front());
    there_.pop_front();
    return numbers;
  }
  clock_->wait(place);
  std::vector<double> numbers;
  for (size_t i = 0; i < which_.size(); ++i) {
    const std::byte* from = places_.data() + (place * which_.size() + i) * kNumber;
    numbers.push_back(load_element(from, run_.scheme()[which_[i]].type.dtype, 0));
  }
  return numbers;
}

}  // namespace adjoint
