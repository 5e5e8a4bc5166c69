// A plan: in which order the morphisms of a scheme run, and where in one arena per tier every
// tensor and every workspace lies. Everything about memory is decided here; `run` only follows.
#pragma once
#include <array>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "kernels/kernel.h"
#include "ops/op_def.h"
#include "scheme/scheme.h"

namespace adjoint {

// What bytes are for, by the role of the object that owns them.
enum class Category : uint8_t {
  kParameters,   // and what they are cast to or fetched as
  kGradients,    // of parameters and of activations
  kOptimizer,    // moments, step counts, a loss scale that is state
  kActivations,  // recomputed ones too
  kWorkspace,
  kOther  // a batch's tokens and targets, control (rate, random counter), metrics (loss, norm)
};
constexpr int kNumCategories = 6;
std::string_view name(Category category);
Category category_of(Role role);

// Lies at the bottom of its arena, for the whole step and beyond: parameters, state, control.
bool is_state(Role role);

// The object that owns some of a storage's bytes, and when. While a storage is alive, each of its
// bytes has exactly one tenant. Views are not tenants, nor are operands that are made inside the
// result of a concat.
struct Tenant {
  Value object = -1;  // -1: the workspace of the call at `from`
  Category category = Category::kOther;
  int from = 0, to = -1;  // places in the order, both included
  Bytes offset = {0};     // in the storage
  Bytes size = {0};
};

// A range of bytes that objects share: an object and its views, an operand and the result that
// overwrites it, state before and after its update, parameters that are adjacent.
struct Storage {
  Bytes size;
  Bytes offset = {-1};
  int first = 0, last = 0;          // alive from this place in the order to that one, both included
  std::vector<Value> objects = {};  // none: a workspace
  std::vector<Tenant> tenants = {};
  Tier tier = Tier::kDevice;
};

struct Alive {
  int storage;
  Tenant tenant;
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
  Bytes state_end = {0};  // parameters, optimizer state, control and landings lie below this
};

// Its workspaces were sized for these terms.
struct Plan : KernelTerms {
  std::vector<PlannedCall> calls = {};  // in order
  // Places in the order: the prologue ends where the body begins, and the epilogue begins where the
  // body ends. What is made before the body and read in it lives to the body's end, because every
  // iteration reads it.
  int body_begin = 0, body_end = 0;
  std::vector<Place> places = {};  // per object
  std::vector<Storage> storages = {};
  // On a GPU, per input: where the next step's data is copied to while this step still reads its
  // own.
  std::map<Value, int> landings = {};  // storages
  Bytes arena = {0};                   // this and the next three are the device's
  Bytes live_peak = {0};
  int peak_at = 0;
  Bytes state_end = {0};
  Arena host = {};         // the next tier
  bool one_memory = true;  // both tiers are in the same memory

  Arena arena_of(Tier tier) const;
  void set_arena(Tier tier, const Arena& arena);
  // Bytes of the memory that the step runs in: the device's tier, and the host's where both are one
  // memory. A budget and a device's memory are compared with these.
  Bytes footprint() const { return one_memory ? arena + host.size : arena; }
  Bytes offset_of(Value v) const { return storages[places[v].storage].offset + places[v].offset; }
  Tier tier_of(Value v) const { return storages[places[v].storage].tier; }
  // The tenants that own the tier's live bytes at a place in the order; their sizes add up to all
  // live bytes.
  std::vector<Alive> alive_at(int place, Tier tier = Tier::kDevice) const;
  // The object that owns a byte of a storage at that place; -1: the workspace of calls[place] does.
  Value owner_at(int storage, int place, Bytes offset = {0}) const;
  // Live bytes at the tier's peak, by category.
  std::vector<Bytes> at_peak(Tier tier = Tier::kDevice) const;
  // Enlarges the arenas where a second plan that runs in them (a guest: the evaluation) needs more.
  void make_room_for(const Plan& guest);
};

struct PlanOptions {
  int threads = 1;
  Target target = Target::kCpu;
  bool deterministic = false;
  bool host_apart = true;  // a GPU has a host tier beside it; a sheet without a link has none
  // From the device's sheet: a kernel that wants a larger workspace is used only where there is no
  // other.
  Bytes workspace_cap = {64 << 20};
  // State that another plan has placed, by source, and that this plan shares. Everything else lies
  // at or above the floor of its tier.
  struct Fixed {
    Tier tier = Tier::kDevice;
    Bytes offset = {0};
  };
  std::map<std::string, Fixed> fixed = {};
  std::array<Bytes, kNumTiers> floor = {};
  bool landings = true;  // a guest in another plan's arena has none
  bool overlap = true;   // collectives are moved away from their readers; off for comparisons
  bool verify = true;    // a search plans many stacks, and verifies the one that it answers with

  KernelTerms terms() const {
    return {.threads = threads,
            .workspace_cap = workspace_cap,
            .target = target,
            .deterministic = deterministic};
  }
};

Plan make_plan(const Scheme& scheme, const PlanOptions& options);

// A morphism's call as a kernel sees it, with objects where the plan has them.
KernelCall kernel_call(const OpCall& call, const Scheme& scheme, const Morphism& morphism,
                       const Plan& plan);

// Where `plan` has put parameters and state, for a second plan in the same arena.
PlanOptions beside(const Scheme& scheme, const Plan& plan, int threads);

// CHECKs that every read finds what was written for it (plan/owners.h), that storages which are
// alive together share no byte, that storages are inside their arena and objects inside their
// storage, that every byte of a storage has one tenant at a time, and that sections are contiguous.
void verify_plan(const Scheme& scheme, const Plan& plan);

}  // namespace adjoint
