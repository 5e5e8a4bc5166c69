// A plan: in which order the morphisms of a scheme run, and where in one arena per tier every
// tensor and every workspace lies. Everything about memory is decided here; `run` only follows.
#pragma once
#include <array>
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
  Tier tier = Tier::kDevice;
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

// What one tier must hold.
struct Arena {
  Bytes size = {0};
  Bytes live_peak = {0};  // the largest sum of live bytes: no arena can be smaller
  int peak_at = 0;        // place in the order
  Bytes state_end = {0};  // parameters, optimizer state and control lie below this
};

struct Plan {
  std::vector<PlannedCall> calls = {};  // in order
  // Places in the order: the prologue is before the body, the epilogue begins where it ends. What
  // is made before the body and read in it lives to its end, for it is read again.
  int body_begin = 0, body_end = 0;
  std::vector<Place> places = {};  // per object
  std::vector<Storage> storages = {};
  Bytes arena = {0};  // these four are the device's
  Bytes live_peak = {0};
  int peak_at = 0;
  Bytes state_end = {0};
  Arena host = {};  // the next tier
  int threads = 1;  // that workspaces are for

  Arena arena_of(Tier tier) const;
  void set_arena(Tier tier, const Arena& arena);
  Bytes offset_of(Value v) const { return storages[places[v].storage].offset + places[v].offset; }
  Tier tier_of(Value v) const { return storages[places[v].storage].tier; }
  // Live bytes at the tier's peak, by category.
  std::vector<Bytes> at_peak(Tier tier = Tier::kDevice) const;
  // Room in every tier for a guest that runs in the same arenas.
  void make_room_for(const Plan& guest);
};

struct PlanOptions {
  int threads = 1;
  // State that another plan has placed, by source: shared with it. Nothing else goes below the
  // floor of its tier.
  struct Fixed {
    Tier tier = Tier::kDevice;
    Bytes offset = {0};
  };
  std::map<std::string, Fixed> fixed = {};
  std::array<Bytes, kNumTiers> floor = {};
};

Plan make_plan(const Scheme& scheme, const PlanOptions& options);

// Where `plan` has put parameters and state, for a second plan in the same arena.
PlanOptions beside(const Scheme& scheme, const Plan& plan, int threads);

// No two storages of a tier that are alive together share a byte, each is inside its arena, and
// each object inside its storage; sections are contiguous, and what crosses iterations keeps its
// bytes throughout the body. CHECKs.
void verify_plan(const Scheme& scheme, const Plan& plan);

}  // namespace adjoint
