// A functor takes a scheme to a scheme, and states its law. The phases of a step are fixed
// (pipeline.cpp is their table of contents); most functors only set an attribute of objects, and
// one realization per attribute acts on it. Functors are text (functors/*.functor at the root) or
// one C++ file here.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "functors/application.h"

namespace adjoint {

enum class FunctorPhase : uint8_t {
  kMorphisms,    // rules that rewrite uses: adapters, joined projections; what is frozen
  kAdjoint,      // how parameters are trained; then reverse mode, and the optimizer: the whole step
  kStates,       // what follows parameters from step to step, beside the optimizer's own
  kStepRules,    // loss scaling; attributes of objects, by role
  kBitChanging,  // fusions whose sums differ: epilogues
  kRealize,      // precision, placement, time, residence and tier last
  kPositions,    // behind precision, of a forward scheme: a few of its positions at a time
  kTimed,        // between time and residence: the readout of one part of the batch, in chunks
  kExact,        // fusions and simplifications behind precision: most keep bits, some move sums
};
std::string_view name(FunctorPhase phase);

// What a functor promises of a stack with it, against the same stack without it.
enum class Law : uint8_t {
  kExact,          // the same bits
  kReassociating,  // the same sums in another order
  kApproximating,  // another function on purpose, which it supplies
};
std::string_view name(Law law);

struct FunctorRule {
  FunctorPhase phase;
  std::function<Scheme(Scheme, Application&)> apply;
};

// One item of a functor that is a stack of others. Its arguments may name that functor's own
// parameters.
struct StackPart {
  std::string name;
  Term call = {};    // its arguments
  bool off = false;  // -name: a default that is switched off
  std::string file = {};
  Position at = {};
};

struct Functor {
  std::string name;
  std::string summary;
  Law law = Law::kExact;
  // Where the law compares with a stack in which another functor is told something else, that
  // functor's call: zero(2) is exact against data_parallel(reduce=part). Null: never.
  std::function<std::optional<Term>(const Arguments&)> against = nullptr;
  std::string against_text = {};  // as its text says it; "": the law compares with nothing else
  // Where what it is told weakens the law: a schedule of one's own that sums in another order.
  // Null: nothing does.
  std::function<Law(const Arguments&)> weakened = nullptr;
  // The axes of the mesh that it says, with their sizes; 0: as many ranks as are left. Null: none.
  std::function<std::vector<MeshAxis>(const Arguments&)> mesh = nullptr;
  std::vector<FunctorParam> params = {};
  bool by_default = false;      // on unless switched off by name
  bool may_match_none = false;  // else no match is an error: true of those on by default
  bool on_gpu_only = false;  // by default: it gains a CPU nothing, and runs there where it is named
  // It acts on a scheme that is evaluated, and generation applies it by itself; no step has it.
  bool of_forward = false;
  std::vector<FunctorRule> rules = {};
  std::string text = {};              // of one that is written as text
  std::vector<StackPart> parts = {};  // of a stack of others, which has no rules of its own
  bool says_law = true;               // a stack that does not has the weakest law of its parts
};

// The functor of this name in a list, or nullptr.
const Functor* find_functor(std::span<const Functor* const> known, std::string_view name);
// Gives a stack of others the weakest law of its parts, and refuses one that promises more.
void settle_law(Functor& functor, std::span<const Functor* const> known);

// All that a stack can name: those written as text, then those in C++, in the order in which they
// are applied within a phase.
std::span<const Functor* const> all_functors();
// Those written as text that travel inside the program (scripts/embed_texts.py).
struct FunctorFile {
  std::string_view name, text;
};
std::span<const FunctorFile> functor_files();

}  // namespace adjoint
