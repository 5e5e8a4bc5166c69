// A plan: in which order the morphisms of a scheme run, and where in one arena every tensor and
// every workspace lies. Everything about memory is decided here; `run` only follows.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "scheme/scheme.h"

namespace adjoint {

enum class Category : uint8_t {
  kParameters,
  kGradients,
  kOptimizer,
  kActivations,
  kWorkspace,
  kOther
};
constexpr int kNumCategories = 6;
std::string_view name(Category category);

// A run of bytes that objects share: an object and its views, an operand and the result that takes
// its place, state that goes in and comes out.
struct Storage {
  Bytes size;
  Bytes offset = {-1};
  int first = 0, last = 0;  // places in the order between which it is alive, both included
  Category category = Category::kOther;
  std::vector<Value> objects = {};  // none: a workspace
};

// Where an object's elements are: storage, offset inside it, strides in elements.
struct Place {
  int storage = -1;
  Bytes offset = {0};
  Strides strides = {};
};

struct PlannedCall {
  int morphism = 0;
  bool is_view = false;  // nothing to run
  int workspace = -1;    // storage
};

struct Plan {
  std::vector<PlannedCall> calls = {};  // in order
  std::vector<Place> places = {};       // per object
  std::vector<Storage> storages = {};
  Bytes arena = {0};
  Bytes live_peak = {0};  // the largest sum of live bytes: no arena can be smaller
  int peak_at = 0;        // place in the order
  int threads = 1;        // that workspaces are for
  Bytes state_end = {0};  // parameters, optimizer state and control lie below this

  Bytes offset_of(Value v) const { return storages[places[v].storage].offset + places[v].offset; }
  // Live bytes at the peak, by category.
  std::vector<Bytes> at_peak() const;
};

struct PlanOptions {
  int threads = 1;
  // State that another plan has placed, by source: shared with it. Nothing else goes below `floor`.
  std::map<std::string, Bytes> fixed = {};
  Bytes floor = {0};
};

Plan make_plan(const Scheme& scheme, const PlanOptions& options);

// Where `plan` has put parameters and state, for a second plan in the same arena.
PlanOptions beside(const Scheme& scheme, const Plan& plan, int threads);

// No two storages that are alive together share a byte, each is inside the arena, and each object
// inside its storage. CHECKs.
void verify_plan(const Scheme& scheme, const Plan& plan);

}  // namespace adjoint
