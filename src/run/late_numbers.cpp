#include "run/late_numbers.h"

#include "base/error.h"
#include "scheme/elements.h"

namespace adjoint {

LateNumbers::LateNumbers(Run& run, std::vector<Value> which) : run_(run), which_(std::move(which)) {
  for (const Value v : which_) {
    const Type& type = run.scheme()[v].type;
    CHECK(type.rank() == 0 || run.plan().places[v].strides == dense_strides(type),
          "numbers that are read late lie side by side");
    size_ += type.bytes();
  }
  if (!run.on_gpu()) return;
  places_ = Buffer(int64_t{kPlaces} * size_, Memory::kPinned);
  clock_ = std::make_unique<GpuClock>(kPlaces);
}

void LateNumbers::note() {
  CHECK(waiting() < kPlaces, "what was noted is taken before its place is used again");
  if (!run_.on_gpu()) {
    there_.emplace_back();
    for (const Value v : which_) {
      const std::vector<double> numbers = run_.values(v);
      there_.back().insert(there_.back().end(), numbers.begin(), numbers.end());
    }
  } else {
    const size_t place = noted_ % kPlaces;
    std::byte* to = places_.data() + static_cast<int64_t>(place) * size_.count;
    for (const Value v : which_) {
      const Bytes size = run_.scheme()[v].type.bytes();
      run_.stream()->copy(to, run_.data(v), size);
      to += size.count;
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
  const std::byte* from = places_.data() + static_cast<int64_t>(place) * size_.count;
  for (const Value v : which_) {
    const Type& type = run_.scheme()[v].type;
    for (int64_t i = 0; i < type.num_elements(); ++i) {
      numbers.push_back(load_element(from, type.dtype, i));
    }
    from += type.bytes().count;
  }
  return numbers;
}

}  // namespace adjoint
