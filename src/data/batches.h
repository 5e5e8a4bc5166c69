// Random crops of the data, the same of every field. The crop of sample i of step s is a pure
// function of the seed, the step, the split and i, so that a resumed run, or one that is split over
// ranks or microbatches, reads the same data as the plain run. Nothing is shuffled, and there is no
// state.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "data/field.h"

namespace adjoint {

class Batches {
 public:
  // Fields of so many tokens. `split` is "train" or "validation". What the fields point to must
  // outlive this and its copies.
  Batches(std::vector<Field> fields, int64_t tokens, int64_t batch, int64_t context, uint64_t seed,
          std::string_view split);

  int64_t batch() const { return batch_; }
  int64_t context() const { return context_; }
  const std::vector<Field>& fields() const { return fields_; }
  size_t bytes_per_sample(size_t field) const;

  // Per field [batch, context], and a row's numbers where a token has a row of them.
  void fill(int64_t step, std::span<void* const> to) const noexcept;
  // The same for the samples from `first` on, counted in the whole batch: [num, context].
  void fill_samples(int64_t step, int64_t first, int64_t num,
                    std::span<void* const> to) const noexcept;
  // Sample `row` is the crop that begins at `start`.
  void fill_crop(int64_t start, int64_t row, std::span<void* const> to) const noexcept;

 private:
  std::vector<Field> fields_;
  int64_t tokens_, batch_, context_;
  uint64_t key_;
};

struct Batch {
  Batch() = default;
  explicit Batch(const Batches& batches);  // takes the memory
  int64_t step = 0;
  std::vector<std::vector<std::byte>> fields = {};  // as fill() writes them
  std::vector<void*> to = {};                       // where it does
};

// Fills the next batch on a thread of its own while the caller works on the last one.
class Prefetcher {
 public:
  Prefetcher(const Batches& batches, int64_t first_step);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The batches of first_step, first_step + 1, ...; each is valid until the next call.
  const Batch& next();

 private:
  void fill_ahead();

  const Batches batches_;
  Batch front_;  // the caller's
  Batch back_;   // the thread's until ready_, then next()'s
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ready_ = false, stop_ = false;
  std::thread thread_;  // last member: it starts when all others are constructed
};

}  // namespace adjoint
