// A functor takes a scheme to a scheme, and states its law. The phases of a step are fixed
// (pipeline.cpp is their table of contents); most functors only set an attribute of objects, and
// one realization per attribute acts on it. Functors are text (functors/*.functor at the root) or
// one C++ file here.
#pragma once
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "device/target.h"
#include "scheme/document.h"
#include "scheme/scheme.h"

namespace adjoint {

// What a training step is made with, beside the model's text.
struct StepOptions {
  std::string optimizer = "adamw";  // sgd, momentum, adamw
  double beta1 = 0.9, beta2 = 0.99, eps = 1e-8;
  double momentum = 0.9;
  double weight_decay = 0.1;     // of matrices and tables
  double clip = 1.0;             // the largest norm of all gradients together; 0: no clipping
  std::string stack = {};        // functors joined by '|'
  Target target = Target::kCpu;  // whose kernels run it
  bool deterministic = false;    // and with the same bits every time
  // The verifier looks at what every functor made; else at the whole step alone, which is what
  // those want who build many steps to choose one of them.
  bool verify_each = true;
};

enum class FunctorPhase : uint8_t {
  kMorphisms,    // rules that rewrite uses: adapters, joined projections; what is frozen
  kAdjoint,      // reverse mode, and the optimizer: the whole step
  kStepRules,    // loss scaling; attributes of objects, by role
  kBitChanging,  // fusions whose sums differ: epilogues
  kRealize,      // precision, placement, time, residence and tier last
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

// What a functor can be told: `every` of checkpoint(every=2).
struct FunctorParam {
  std::string name;
  std::string otherwise = {};  // the default, as it is written; "": it must be given
  std::string summary = {};
  std::vector<std::string> words = {};  // the words that it may be; none: a number
  bool whole = true;                    // of a number
  double least = 1, most = std::numeric_limits<double>::infinity();
  bool list = false;  // several, as in keep=[2, 5]
  bool text = false;  // in quotes
  // What it is told on a small copy of a model, where the default would find nothing to do.
  std::string on_small = {};
};

// What it was told, defaults filled in and checked.
class Arguments {
 public:
  // `at` names the functor in complaints. Every param is given, by position, by name or by default.
  Arguments(std::string_view functor, const std::vector<FunctorParam>& params, const Term& call);

  bool is_word(std::string_view name) const;
  double number(std::string_view name) const;
  int64_t whole(std::string_view name) const { return static_cast<int64_t>(number(name)); }
  std::string word(std::string_view name) const;
  const Term& term(std::string_view name) const;
  // Elements of a list; a single value is a list of one.
  std::vector<Term> list(std::string_view name) const;
  std::string print() const;  // (every=2), only what is not the default

 private:
  std::map<std::string, Term, std::less<>> values_;
  std::string printed_;
};

// A branch of a functor's rule that acted, and on what. Whoever checks a stack on a small copy of a
// model asks for these, because every branch that acts in the model must act in the copy.
struct Firing {
  size_t functor;      // its place in the stack
  std::string branch;  // the rule and its branch, as people read them
  std::string source;  // the object or use; "": all of the scheme
};

// One functor at work in one phase: what it was told, and what it tells.
class Application {
 public:
  std::string functor;  // its name, for messages
  const Arguments& args;
  const StepOptions& options;
  bool training = true;  // false: the scheme is evaluated, there are no gradients
  int64_t matches = 0;   // objects and morphisms that it found
  std::map<std::string, int64_t> counts = {};  // of them, by what they are or became
  // Who has said what of an object's attribute, by source and attribute: (value, functor).
  using Said = std::map<std::pair<std::string, std::string>, std::pair<std::string, std::string>>;
  Said* said = nullptr;
  size_t index = 0;                        // of the functor, in its stack
  std::vector<Firing>* firings = nullptr;  // where they are asked for
  // The branches of the rule that speaks; none: what it says is the branch.
  std::vector<std::string> branches = {};

  void note(const std::string& branch, const std::string& source) {
    if (firings) firings->push_back({index, branch, source});
  }
  // Says `value` of an attribute of v, and counts a match. Refuses the stack when another functor
  // said something else of it.
  void say(const Scheme& scheme, Value v, const std::string& attribute, const std::string& value);

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(functor, ": ", parts...);
  }
};

struct FunctorRule {
  FunctorPhase phase;
  std::function<Scheme(Scheme, Application&)> apply;
};

struct Functor {
  std::string name;
  std::string summary;
  Law law = Law::kExact;
  std::vector<FunctorParam> params = {};
  bool by_default = false;      // on unless switched off by name
  bool may_match_none = false;  // else no match is an error: true of those on by default
  bool on_gpu_only = false;  // by default: it gains a CPU nothing, and runs there where it is named
  std::vector<FunctorRule> rules = {};
  std::string text = {};  // of one that is written as text
};

// All that a stack can name: those written as text, then those in C++, in the order in which they
// are applied within a phase.
std::span<const Functor* const> all_functors();
// Those written as text that travel inside the program (scripts/embed_texts.py).
struct FunctorFile {
  std::string_view name, text;
};
std::span<const FunctorFile> functor_files();
// Of a text; mistakes name file, line and column.
Functor parse_functor(std::string_view text, std::string_view file);

// A stack as it was written: `bf16 | checkpoint(every=2) | -fuse`, with the defaults that were not
// switched off. Unknown names are refused with the nearest one.
struct StackedFunctor {
  Functor functor;
  Arguments args;
  bool by_default = false;
  std::string print() const { return functor.name + args.print(); }
};
// Is it on by default, and for another target?
inline bool is_idle(const StackedFunctor& f, Target target) {
  return f.by_default && f.functor.on_gpu_only && target == Target::kCpu;
}
struct Stack {
  std::vector<StackedFunctor> functors;  // in the order in which a phase applies them
  std::vector<std::string> off = {};     // defaults that were switched off
};
Stack parse_stack(std::string_view text);
std::string print(const Stack& stack);  // without the defaults
// The law of the whole stack: the weakest of those that were named, exact when none was.
Law law_of(const Stack& stack);
Stack without(const Stack& stack, size_t index);

// What one functor did.
struct Applied {
  std::string name;  // with its arguments
  Law law = Law::kExact;
  bool by_default = false;
  bool idle = false;  // it is for another target
  int64_t matches = 0;
  std::map<std::string, int64_t> counts = {};
  int64_t morphisms_before = 0, morphisms_after = 0;
};
struct BuiltStep {
  Scheme scheme;
  std::vector<Applied> applied = {};
};

// A model's forward scheme, with the loss as (sum, count), to one whole training step. The verifier
// runs after every functor. Outputs: loss, count and the norm of the gradient.
BuiltStep build_step(const Scheme& forward, const Stack& stack, const StepOptions& options,
                     std::vector<Firing>* firings = nullptr);
// The same for those who build many steps of one model with the same options but for the stack: the
// gradients and the optimizer are made once for all stacks whose morphism rules are the same. May
// be used by several threads at once.
class StepBuilder {
 public:
  StepBuilder(Scheme forward, StepOptions options);
  ~StepBuilder();
  BuiltStep build(const Stack& stack);
  Scheme said(const Stack& stack);  // as said_step

 private:
  struct Beginnings;
  Scheme forward_;
  StepOptions options_;
  std::unique_ptr<Beginnings> beginnings_;
};
// The same only as far as attributes are said, before anything is realized: what could be chosen.
Scheme said_step(const Scheme& forward, const Stack& stack, const StepOptions& options);
Scheme training_step(const Scheme& forward, const StepOptions& options);
// The same stack on the forward scheme alone, without randomness: what is evaluated, beside the
// step's own state. Outputs: loss and count.
BuiltStep build_evaluation(const Scheme& forward, const Stack& stack, const StepOptions& options);
Scheme evaluation_scheme(const Scheme& forward, const Stack& stack, const StepOptions& options);

// Reverse mode: the gradient of the loss's sum by every parameter that is not frozen, as further
// outputs in the order of the parameters.
Scheme apply_adjoint(const Scheme& forward);
// Norm, clipping, one division, and the update of every parameter that has a gradient.
Scheme apply_optimizer(const Scheme& with_gradients, const StepOptions& options);

// The realizations, one per attribute, in the order in which they run. Each inserts its transport
// once, gives every attribute to what it creates, and leaves a scheme without its attribute as it
// was.
Scheme realize_precision(Scheme scheme);
Scheme realize_placement(Scheme scheme);
Scheme realize_time(const Scheme& scheme);
Scheme realize_residence(Scheme scheme);
Scheme realize_tier(Scheme scheme);

// The same scheme as the reference runs it: float64 throughout, fused ops as their meaning. An
// object that is stored in less than float32 is rounded to it.
Scheme to_reference(const Scheme& scheme);

// The forward scheme as it is evaluated: random ops pass their first operand through.
Scheme without_randomness(const Scheme& forward);

// The forward scheme without its loss, its output the logits that the loss reads.
Scheme logits_of(const Scheme& forward);

}  // namespace adjoint
