// Samples in batches. Which sample row i of step s is, is a pure function of the seed, the split, s
// and i, so that a resumed run, or one that is split over ranks or microbatches, reads the same
// data as the plain run: there is no state but which batches were left out, and where the size of
// batches changed (DataPosition). Samples are drawn at random (crops), or all of them once per
// epoch in an order that is computed (data/permutation.h).
#pragma once
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "data/field.h"

namespace adjoint {

// What a row of a batch can be: samples by number. Called on several threads.
class Samples {
 public:
  virtual ~Samples() = default;
  virtual int64_t count() const = 0;
  // Writes sample `index` to a row of each field.
  virtual void fill(int64_t index, std::span<std::byte* const> to) const noexcept = 0;
  // Going through the data once, without seeing anything twice, are these samples.
  virtual int64_t count_in_order() const { return count(); }
  virtual int64_t nth_in_order(int64_t n) const { return n; }
  // Which tokens of its source a sample holds.
  struct Tokens {
    int64_t first = 0, size = 0;
  };
  virtual Tokens tokens_of(int64_t index) const = 0;
};

// Which batch a step reads. Batches are numbered from 0, and the steps read one after another, but
// for those that are left out. A run whose batches changed their size goes on with the next sample.
struct DataPosition {
  struct Size {
    int64_t batch = 0, sample = 0;  // from this batch on, which begins with this sample
    bool operator==(const Size&) const = default;
  };
  std::vector<int64_t> left_out = {};  // in order
  std::vector<Size> sizes = {};  // in order; before the first, batches have the last one's size

  int64_t batch_of(int64_t step) const noexcept;
  // The first sample of a batch of the current size, and not of a batch before the last change.
  int64_t sample_of(int64_t batch, int64_t size) const noexcept;
  void leave_out(int64_t batch);
  // From this step on, batches have another size. Batches ahead that were left out are taken in
  // again: their numbers would stand for other samples.
  void change_size(int64_t step, int64_t size_before);
  bool operator==(const DataPosition&) const = default;
};

// Samples of one source. Where several have weights, that is the source's share of all samples.
struct WeightedSamples {
  std::shared_ptr<const Samples> samples;
  double weight = 1;
};

// Ends the sentence that refuses a part of the data which is shorter than one sample.
constexpr std::string_view advice_on_length(bool training) {
  return training ? "; say a shorter --seq or a smaller --val-fraction, or give it more --data"
                  : "; say a shorter --seq or a larger --val-fraction, or give it more --data";
}

// Elements of a field's [batch, context, ...] that one of several ranks draws. A run lies one
// element behind the other both in the whole and in the rank's piece; what no run covers is
// padding.
struct DrawnPiece {
  struct Run {
    int64_t whole = 0, local = 0, count = 0;
  };
  int64_t size = 0;
  std::vector<Run> runs = {};  // in order
};

class Batches {
 public:
  enum class Draw : uint8_t { kAtRandom, kShuffled };

  // Crops of fields of so many tokens. `split` is "train" or "validation". What the fields point to
  // must outlive this and its copies.
  Batches(std::vector<Field> fields, int64_t tokens, int64_t batch, int64_t context, uint64_t seed,
          std::string_view split);
  // Samples of sources; of the fields only names and widths count.
  Batches(std::vector<Field> fields, std::vector<WeightedSamples> sources, Draw draw, int64_t batch,
          int64_t context, uint64_t seed, std::string_view split);

  // The same with a piece of every field alone, as one of several ranks draws them.
  Batches shared(std::span<const DrawnPiece> pieces) const;
  Batches whole() const;
  // Padding holds these numbers, by field; 0 where nothing is said.
  void pad_with(std::map<std::string, int64_t> padding) { padding_ = std::move(padding); }

  int64_t batch() const { return batch_; }  // of all ranks together
  int64_t context() const { return context_; }
  const std::vector<Field>& fields() const { return fields_; }
  size_t bytes_per_sample(size_t field) const;

  // Per field its piece of [batch, context, ...]. Padding is left as it is: a Batch has it from the
  // beginning.
  void fill(int64_t step, std::span<void* const> to) const noexcept;

  // From now on steps read what this says.
  void set_position(DataPosition position) { position_ = std::move(position); }
  const DataPosition& position() const { return position_; }

  // The data once through: samples `first`, `first` + 1, ... as a batch. Rows behind the last
  // sample are padding, and the last sample again in fields that have none.
  int64_t count_in_order() const;
  void fill_in_order(int64_t first, std::span<void* const> to) const noexcept;
  // How many times the data were gone through before this step; of sources with weights, the one
  // that repeats most often.
  double epoch(int64_t step) const;

  // Where row `row` of a step came from: the source, and the sample of it.
  struct Origin {
    size_t source = 0;
    int64_t sample = 0;
  };
  Origin origin(int64_t step, int64_t row) const noexcept;
  Samples::Tokens tokens_of(const Origin& from) const;

 private:
  // Bytes of one row of the batch that lie one behind the other in a field's piece.
  struct RowPiece {
    size_t field = 0;
    int64_t in_row = 0, in_piece = 0, count = 0;
  };
  struct Row {
    int64_t row = 0;
    std::vector<RowPiece> pieces = {};
  };
  struct Share {
    std::vector<int64_t> sizes = {};  // bytes of each field's piece
    std::vector<Row> rows = {};       // those of which it has something
  };

  void check_sizes() const;
  Row whole_row(int64_t row) const;
  int64_t bytes_of_piece(size_t field) const;
  Origin origin_in_order(int64_t n) const noexcept;
  void fill_row(const Origin& from, const Row& row, std::span<std::byte> scratch,
                std::span<void* const> to) const noexcept;
  void pad_row(const Row& row, std::span<void* const> to) const noexcept;
  template <typename FillRow>
  void for_each_row(const FillRow& fill_row) const noexcept;
  std::optional<int32_t> padding_of(size_t field) const noexcept;

  std::vector<Field> fields_;
  std::vector<WeightedSamples> sources_;
  std::vector<int64_t> slots_;  // of a block of samples, those up to and with this source's
  Draw draw_ = Draw::kAtRandom;
  int64_t batch_, context_;
  std::shared_ptr<const Share> share_ = {};  // nothing: everything
  std::map<std::string, int64_t> padding_ = {};
  uint64_t key_;
  DataPosition position_;
  friend struct Batch;
};

struct Batch {
  Batch() = default;
  explicit Batch(const Batches& batches);  // takes the memory
  int64_t step = 0;
  std::vector<std::vector<std::byte>> fields = {};  // as fill() writes them
  std::vector<void*> to = {};                       // where it does
};

// Fills the next batches on threads of its own while the caller works on the last one.
class Prefetcher {
 public:
  Prefetcher(const Batches& batches, int64_t first_step, int threads = 2);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The batches of first_step, first_step + 1, ...; each is valid until the next call.
  const Batch& next();
  // For how long next() has waited for a batch that was not ready, in all.
  double stalled_seconds() const { return stalled_; }

 private:
  void fill_ahead();

  const Batches batches_;
  // The caller's, those that are ready, and those that threads are filling. A step's batch is in
  // the slot of its remainder.
  std::vector<Batch> slots_;
  std::vector<bool> ready_;
  int64_t taken_, claimed_;  // next() gave, and threads began, all steps before these
  double stalled_ = 0;
  std::mutex mutex_;
  std::condition_variable filled_, freed_;
  bool stop_ = false;
  std::vector<std::thread> threads_;  // last member: they start when all others are constructed
};

}  // namespace adjoint
