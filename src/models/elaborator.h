// The state of one elaboration. Boxes and their statements are run in elaborate.cpp, terms in
// terms.cpp, losses in losses.cpp, calls of boxes in box_calls.cpp, and calls of ops, whose
// arguments depend on what the op says it takes, in op_calls.cpp.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "models/elaborate.h"
#include "ops/surface.h"

namespace adjoint {

// What an axis is called whose size is written so, in characters that the flat notation reads back.
std::string axis_label(const Term& size);

// The name by which a call is seen from inside `around`, a path; nothing: it is in a box elsewhere.
std::optional<std::string> name_seen_from(std::string_view around, const std::string& call);

class Elaborator {
 public:
  Elaborator(const Document& document, std::string_view file, const ModelConfig& config,
             const KnownUses& uses);
  Scheme run();
  const Written& written() const { return written_; }

 private:
  // One object, or several side by side.
  using Objects = std::vector<Value>;
  // One object for every repetition of a box.
  struct List {
    Objects items;
  };
  // A weighted sum of (sum, count) pairs.
  struct LossTerm {
    double weight;
    Value sum, count;
  };
  using Loss = std::vector<LossTerm>;
  // What a box gives that gives more than objects: lists that it gathered when it was repeated, and
  // losses, which a repetition adds up.
  struct Tuple {
    Objects objects;
    std::vector<List> lists = {};
    std::vector<Loss> losses = {};
  };
  using Meaning = std::variant<double, Objects, List, Tuple, Loss>;

  // One call of a box.
  struct Scope {
    const Box& box;
    std::string path = {};                   // "" for the model
    std::string weights = {};                // the call whose parameters it has: its own path
    std::optional<int64_t> repetition = {};  // `l`, of the innermost repetition around
    std::map<std::string, Meaning, std::less<>> locals = {};
    std::map<std::string, int, std::less<>> calls = {};  // of each op and box so far
    std::set<std::string, std::less<>> taken = {};       // components of paths
  };

  // elaborate.cpp
  Meaning run_body(Scope& scope);
  void run_statement(Scope& scope, const Statement& statement);
  void check_formal(const Scope& scope, const Formal& formal, Value found, Position at);
  Type type_of(const Scope& scope, const Formal& formal);
  Meaning call(Scope& scope, const Term& call);
  std::string describe(const Meaning& meaning) const;
  // The path of a call: its name, or a number among the calls of its kind in this box.
  std::string call_path(Scope& scope, const Term& call, std::string_view kind, bool is_box);
  // Names that calls of a box say in quotes.
  const std::set<std::string>& numbered_in(const Box& box);
  void count_call(Position at);
  void accept_objects(Value first, std::string_view maker, Position at);

  // terms.cpp
  Meaning evaluate(Scope& scope, const Term& term);
  Meaning evaluate_here(Scope& scope, const Term& term);
  Meaning meaning_of_name(const Scope& scope, const Term& name);
  Meaning combine(Scope& scope, const Term& binary);
  Objects relate(Scope& scope, const Term& term, std::string_view op, SurfaceCall::Argument a,
                 SurfaceCall::Argument b);
  Objects opposite(Scope& scope, const Term& term, Value of);
  SurfaceCall::Argument truth(Scope& scope, const Term& term, const SurfaceCall::Argument& of);
  bool is_numeric(const Scope& scope, const Term& term) const;
  bool holds(const Scope& scope, const Term& when);
  double number(const Scope& scope, const Term& term);
  int64_t whole_number(const Scope& scope, const Term& term, std::string_view what);
  Value one_object(Scope& scope, const Term& term, std::string_view what);
  Value position(Position at);

  // losses.cpp
  Meaning combine_losses(const Term& binary, const Meaning& left, const Meaning& right);
  Objects finish(const Meaning& value, Position at);
  Value weighted_sum(const Loss& loss, const std::vector<Value>& factors);

  // box_calls.cpp
  Meaning call_box(Scope& scope, const Term& call, const Box& box);
  Meaning repeat_box(Scope& scope, const Term& call, const Box& box, std::vector<Meaning> given,
                     const std::string& path);
  void check_carried(const Box& box, size_t result, const std::string& operand, Position at) const;
  Meaning run_box(Scope scope, const Objects& inputs, Position at);
  void check_formals(const Box& box, const Objects& inputs, Position at);
  std::string weights_for(const Scope& scope, const Term& call, const std::string& path);
  Meaning call_word(Scope& scope, const Term& call);
  Objects free_parameter(Scope& scope, const Term& call);

  // op_calls.cpp
  SurfaceCall surface_call(const Scope& scope, std::string path);
  using Arguments = std::map<std::string, SurfaceCall::Argument, std::less<>>;
  Meaning call_op(Scope& scope, const Term& call, const OpDef& op);
  Meaning call_again(Scope& scope, const Term& call, const KnownUse& use);
  Objects emit(const OpDef& op, SurfaceCall& call, Position at);
  Objects emit_infix(Scope& scope, const Term& term, std::string_view op, Arguments arguments);
  std::vector<std::pair<const Param*, const Term*>> bind(Scope& scope, const Term& call,
                                                         const OpDef& op);
  void add_argument(Scope& scope, SurfaceCall& call, const OpDef& op, const Param& param,
                    const Term& term);
  void add_default(SurfaceCall& call, const OpDef& op, const Param& param, Position at);
  int64_t axis(Scope& scope, const SurfaceCall& call, const OpDef& op, const Term& term);
  bool is_named_here(const Scope& scope, const std::string& name) const {
    return scope.locals.count(name) || settings_.count(name) || (name == "l" && scope.repetition);
  }
  bool flag(const Scope& scope, const Term& term);
  void check_borrowed(size_t first_call, const std::string& owner, std::string_view op,
                      Position at);
  bool is_frozen(const Scope& scope, const Term& call);
  void freeze(size_t first, std::string_view maker, Position at);
  Init init(const Scope& scope, const Term& term);
  Value parameter_of_call(const Scope& scope, const Term& name, std::string_view parameter);

  template <class... Parts>
  [[noreturn]] void fail_here(Position at, const Parts&... parts) const {
    fail_at(file_, at, parts...);
  }

  const Document& document_;
  std::string file_;
  std::string name_;
  Settings settings_;
  const KnownUses& uses_;
  Scheme scheme_;
  Builder builder_;
  std::vector<const Box*> open_boxes_;
  std::unordered_map<std::string, Value> parameters_;  // by path
  std::set<std::string> owners_;                       // paths of calls that have weights
  std::map<const Box*, std::set<std::string>> numbered_;
  std::set<Value> truths_;  // objects of ones and zeros
  std::optional<Value> position_;
  int64_t calls_ = 0, bytes_ = 0;
  Written written_;
};

}  // namespace adjoint
