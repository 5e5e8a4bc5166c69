// What this house knows about one op, all of it in the op's one file. Elementwise and row ops give
// a `body` and samples; the rest of their fields derive from it (a null field is that decision).
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "body/body.h"
#include "ops/index_map.h"
#include "scheme/scheme.h"

namespace adjoint {

// One call of an op as the scheme sees it: types and constants, no data.
struct OpCall {
  std::string_view op;
  std::vector<Type> inputs;
  Attrs attrs = {};

  int64_t integer(std::string_view key) const;
  int64_t integer(std::string_view key, int64_t otherwise) const;
  double number(std::string_view key) const;
  double number(std::string_view key, double otherwise) const;
  std::string text(std::string_view key, std::string_view otherwise = "") const;
  std::vector<int64_t> list(std::string_view key) const;
};

// What a repetition of the op would do: nothing, draw the same bits again, choose again, or write.
enum class Effect : uint8_t { kPure, kRandom, kChoosing, kWritesState };
std::string_view name(Effect effect);

// In which operands an op is linear: in none, in all of them together (a sum), or in each by itself
// while the others stay (a product).
enum class Linear : uint8_t { kNo, kTogether, kEach };

// What a predicted time is reckoned by, beside bytes: FLOPs at the rate of row ops, of matrix
// products, or at the share of that which attention reaches, forward and backward.
enum class CostClass : uint8_t { kRows, kProducts, kAttention, kAttentionGrad };

// How results lie in operand 0, or operands in the result, without being copied.
enum class LiesWithin : uint8_t {
  kNo,
  kJoins,   // operands side by side in the result, along the attribute `axis`
  kSlice,   // the result is a slice of operand 0, along `axis`
  kSplits,  // the last axis of operand 0 as two
  kMerges,  // the last two axes of operand 0 as one
};

// What an op that updates a parameter keeps from step to step, and which numbers it is told.
struct UpdateRule {
  std::vector<std::string_view> states = {};  // per parameter, zeros at first
  bool counts_steps = false;
  std::vector<std::string_view> numbers = {};  // attributes that the optimizer's settings say
};

class Builder;
struct CarryCall;
class GradCall;
class PiecesCall;
class SurfaceCall;

// An operand or constant as the notation takes it, by position or by name.
struct Param {
  enum class Kind : uint8_t {
    kTensor,
    kTensors,  // all that are given by position, lists too
    kMaybeTensor,
    kOperand,  // an object, or a number that becomes an attribute
    kSize,
    kAxis,  // of the first operand, by its label or its number
    kNumber,
    kFlag,
    kInit,
    kWord
  };
  std::string_view name;
  Kind kind = Kind::kTensor;
  std::string_view otherwise = {};  // the default, as written in the notation; "" is: required
};

// A call for tests: how its operands are filled.
struct Sample {
  enum class Fill : uint8_t { kNormal, kLarge, kPositive, kIds, kCounter, kOne };
  std::vector<Type> inputs;
  Attrs attrs = {};
  std::vector<Fill> fills = {};  // past the end: kNormal
  int64_t ids_below = 4;
  int64_t ignored_id = -1;  // one id in five is this one, if it is not -1
};

struct OpDef {
  std::string_view name;
  std::string_view summary;
  std::vector<Param> params = {};  // how the notation calls it; none: it can't
  std::vector<Value> (*surface)(SurfaceCall&) =
      nullptr;                            // else: tensors are operands, the rest attrs
  Body (*body)(const OpCall&) = nullptr;  // elementwise and row ops
  std::vector<Axis> (*space)(const OpCall&) = nullptr;  // of a body without operands
  bool wide = false;  // its body is computed in float64, and rounded at the end
  std::vector<Type> (*infer)(const OpCall&) = nullptr;  // throws Error
  IndexMap (*index_map)(const OpCall&) = nullptr;
  int64_t (*flops)(const OpCall&) = nullptr;
  void (*grad)(GradCall&) = nullptr;  // emits morphisms, no kernels
  bool differentiable = true;         // false: no operand has a gradient
  std::vector<int> constants = {};    // operands that get no gradient
  Effect effect = Effect::kPure;
  Effect (*effects)(const OpCall&) = nullptr;  // where calls differ
  // Of an op that draws random numbers where a call says so: the same call without them. Any other
  // random op is, on average, the identity of its first operand.
  void (*calm)(Morphism&) = nullptr;
  std::vector<std::string_view> output_names = {};  // of outputs past the first
  bool one_dtype = false;   // its floating operands have one dtype, that of its first result
  bool says_dtype = false;  // the attribute "dtype" says that of its first result
  bool says_body = false;  // the attribute "body", where a call has it, says its body or its calls'
  // Outputs that are operand 0 seen with other strides; nothing when these strides cannot say it.
  std::optional<Strides> (*view)(const OpCall&, const Strides&, int64_t& offset) = nullptr;
  bool wants_dense = false;    // its kernels take no strided views
  bool multiplies = false;     // a matrix product: any padding, and best at even sizes
  bool takes_padding = false;  // the same of padding, of ops that are neither bodies nor products
  std::vector<std::pair<int, int>> may_overwrite = {};                      // (output, operand)
  std::vector<std::pair<int, int>> (*overwrites)(const OpCall&) = nullptr;  // where calls differ
  std::vector<Value> (*meaning)(Builder&, std::span<const Value>, const Attrs&) = nullptr;
  // Of an op that knows or mixes positions: its call for a few of them from an origin on, with what
  // it must know of earlier ones kept from step to step (ops/carry.h). Ops for which a position is
  // one row like any other need none.
  std::vector<Value> (*carry)(CarryCall&) = nullptr;
  // Of an op whose index map has a letter that a call must be told the origin of: what a rank does
  // with its pieces (ops/pieces.h).
  std::vector<Value> (*in_pieces)(PiecesCall&) = nullptr;
  // ---- facts, which functors, plans and costs ask for instead of names ----
  Linear (*linear)(const OpCall&) = nullptr;  // null: in none; views are linear
  LiesWithin lies = LiesWithin::kNo;
  CostClass cost = CostClass::kRows;
  int addend = -1;    // the operand that is added to the result, where a call has it
  int weight = -1;    // the operand that is the matrix of a linear map of operand 0
  int table = -1;     // the operand whose rows the ids of operand 0 choose
  int targets = -1;   // the operand of class ids; the one that `ignore` says counts for nothing
  bool loss = false;  // (sum, count, ...) of a loss of the rows of operand 0
  // Of an op whose first two results are a term of the loss, (sum, count): the op that gives the
  // count from operand `targets` alone.
  std::string_view counted_by = {};
  std::string_view loss_grad = {};       // of a loss: the op that is its gradient,
  std::string_view loss_with_grad = {};  // and the one that is both
  bool attends = false;          // positions read other positions by softmax of their products
  bool moves = false;            // a copy from one tier to another
  bool collective = false;       // speaks to other ranks (ops/collective.h)
  bool to_one_rank = false;      // a message to or from one other rank (ops/message.h)
  bool decodes = false;          // codes and scales become a matrix
  bool rounds_operands = false;  // may multiply float32 operands as tf32
  const UpdateRule* update = nullptr;  // of an optimizer
  int verdict = -1;  // the result that says whether the gradients were finite and counted
  std::vector<Sample> (*samples)() = nullptr;
  std::vector<Sample> (*refused)() = nullptr;  // calls that `infer` must refuse
};

std::span<const OpDef* const> all_ops();
const OpDef* find_op(std::string_view name);
const OpDef& op_named(std::string_view name);  // CHECKs that there is one

// An op that its body says all of: whatever runs bodies runs it, alone or joined to others.
inline bool is_row_op(const OpDef& op) { return op.body && !op.infer && !op.wide; }

// The facts of a call, or of a morphism.
Effect effect_of(const OpCall& call);
bool is_linear_together(const OpCall& call);
bool is_cast(const OpCall& call);      // the same values, in a dtype of its own
bool is_addition(const OpCall& call);  // of two operands, element by element
inline bool says_body(const Morphism& m) {
  return op_named(m.op).says_body && m.attrs.count("body") > 0;
}
// The same call as a map with another body, of as many operands and results.
void say_body(Morphism& m, const Body& body);
inline bool has_addend(const OpDef& op, size_t operands) {
  return op.addend >= 0 && op.addend < static_cast<int>(operands);
}
// A matrix product that could add its sums to an operand, and has none yet.
inline bool may_take_addend(const OpDef& op, size_t operands) {
  return op.multiplies && op.addend == static_cast<int>(operands);
}
int64_t ignored_target(const OpCall& call);  // of an op with targets
// Whether `grad` is the gradient of this call of a loss: (logits, targets, log-sums, scale).
bool is_gradient_of_loss(const Scheme& scheme, const Morphism& grad, const Morphism& loss);
std::vector<std::string> optimizer_names();  // ops with an update rule

// The fields, derived from the body where the op leaves them out.
std::vector<Type> infer_types(const OpCall& call);
int64_t count_flops(const OpCall& call);
IndexMap index_map_of(const OpCall& call);
std::vector<std::pair<int, int>> overwrites(const OpCall& call);
Body body_of(const OpCall& call);                // of an op that has one
std::vector<Axis> space_of(const OpCall& call);  // what a body runs over

OpCall call_of(const Scheme& scheme, const Morphism& morphism);
// Every call's types are what its op infers. After verify_structure, after every transformation.
void verify(const Scheme& scheme);

}  // namespace adjoint
