// The memory of a planned step over time: which objects' bytes are alive at every call, and what
// runs there (phase, block, part of the batch). Tables, charts and traces are made from this.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace adjoint {

using CategoryBytes = std::array<int64_t, kNumCategories>;
int64_t total(const CategoryBytes& bytes);

// Layers of a chart from the bottom up: first what stays for the whole step, then the rest.
constexpr std::array<Category, kNumCategories> kLayers = {
    Category::kParameters, Category::kOptimizer,   Category::kOther,
    Category::kGradients,  Category::kActivations, Category::kWorkspace};

// One execution of a planned call. A timeline repeats the body once per part. Times are seconds, or
// calls where no seconds are known.
struct Moment {
  int place = 0;  // in the order
  int part = 0;   // of the batch; 0 outside the body
  // On the clock of the arithmetic, where each moment ends as the next one begins. What runs
  // concurrently with the arithmetic takes no time on this clock unless the arithmetic waits.
  double begins = 0, ends = 0;
  bool beside = false;      // it runs concurrently, so time between them is spent waiting
  double from = 0, to = 0;  // when the call itself runs
};

// What a call is for.
enum class Kind : uint8_t { kForward, kBackward, kRecomputation, kUpdate };
std::string_view name(Kind kind);
Kind kind_of(const Morphism& morphism);

enum class CopyWay : uint8_t { kNone, kFromHost, kToHost };

// Consecutive moments, from first to last inclusive.
struct Stretch {
  int first = 0, last = 0;
  std::string name = {};
};

struct Timeline {
  Tier tier = Tier::kDevice;
  Bytes arena = {0};
  // Per place of the order and by category; the last one is after the last call.
  std::vector<CategoryBytes> live = {};
  Bytes peak = {0};
  int peak_at = 0;              // place
  std::string peak_words = {};  // "at block[11].up:grad, backward of block[11], call 412 of 731"
  std::vector<Moment> moments = {};
  std::vector<Kind> kinds = {};  // per place
  // Axes of the mesh along which calls speak to other ranks; per place which one, -1: none.
  std::vector<std::string> spoken = {};
  std::vector<int> speaks_along = {};
  // Per place: whether the call copies between tiers, and where to.
  std::vector<CopyWay> copies = {};
  bool in_seconds = false;
  std::string clock = {};  // where the seconds come from
  int parts = 1;           // how often the body runs
  bool body_once = false;  // there are too many parts to show, so the body is shown once
  double left_out = 0;     // the time of the parts that are not shown
  std::vector<Stretch> sections = {};  // "prologue", "part 1 of 4", ..., "epilogue"; one: "step"
  // In every section, and in every slot of a pipeline: forward until the first backward call,
  // backward until the last one, then update.
  std::vector<Stretch> phases = {};
  // In forward and backward phases: from a block's first call, or the first that computes it again,
  // to the next block's.
  std::vector<Stretch> blocks = {};

  double length() const { return moments.empty() ? 0 : moments.back().ends; }
  double step() const { return length() + left_out; }
  // Behind this moment the parts that are not shown are left out; -1: all are shown.
  int last_before_fold() const;
  int peak_moment() const;  // the first moment at the peak; -1: there are no calls
};

// When the calls of one rank begin in a step that several work on together, which it waits for.
struct StepClock {
  std::vector<double> begins = {};  // per planned call; none: one begins as the last one ends
  double length = 0;                // of the whole step
};

struct TimelineOptions {
  Tier tier = Tier::kDevice;
  std::vector<double> seconds = {};  // per planned call (StepTime::seconds); none: equally wide
  std::string clock = {};            // "predicted for cpu", "measured"
  int most_parts = 3;                // a body of more parts is shown once
  // What runs concurrently with the arithmetic (plan/lanes.h), as the predicted step has it.
  bool copies_overlap = false, collectives_overlap = false;
  StepClock clock_of_step = {};
};
// Whether copies between tiers of this plan run concurrently with the arithmetic.
bool copies_overlap(const Plan& plan);

Timeline make_timeline(const Scheme& scheme, const Plan& plan, const TimelineOptions& options);

// The path up to its first index, "block[3]"; "" for sources outside of blocks.
std::string block_of(const Source& source);

// "at block[11].up:grad, backward of block[11], call 412 of 731".
std::string moment_in_words(const Scheme& scheme, const Plan& plan, int place);

// An owner of some bytes of a storage, from one place in the order to another, both included.
struct Owner {
  int storage = 0;
  Value object = -1;  // -1: the workspace of the call at `from`
  Category category = Category::kOther;
  int from = 0, to = 0;
  Bytes size = {0};
};
std::vector<Owner> owners(const Plan& plan, Tier tier);

}  // namespace adjoint
