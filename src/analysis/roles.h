// What objects and morphisms are in a scheme, told from how they are used and never from a name:
// the words by which functors select them.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/structure.h"

namespace adjoint {

enum class ParameterKind : uint8_t {
  kMatrix,  // an axis of it is summed against another operand: a linear map
  kTable,   // its rows are looked up by ids
  kVector,  // it scales or shifts: gains and biases
};

// For every object; meaningful for parameters and what is computed from parameters alone. Used as a
// matrix anywhere, it is one (tied weights); casts, views and joins are seen through.
std::vector<ParameterKind> parameter_kinds(const Scheme& scheme);

// For every object: does the op that makes it decide its dtype, whatever its operands' are? So are
// the log-sums of an attention and of the loss: whoever reads them expects them as they are.
std::vector<bool> fixed_dtypes(const Scheme& scheme);

// What a morphism that reads a parameter does with it.
enum class Use : uint8_t {
  kNone,
  kEmbedding,     // looks rows up
  kAttentionIn,   // a linear map whose result an attention reads
  kAttentionOut,  // a linear map that reads an attention's result
  kRouter,        // a linear map whose result is chosen from
  kReadout,       // a linear map whose result the loss reads
  kFeedForward,   // any other linear map in the chain
  kLinear,        // and outside of it
  kNorm,          // reduces rows and scales them
  kOther,
};
std::string_view name(Use use);

// Everything that selectors ask of one scheme, found once.
class Roles {
 public:
  explicit Roles(const Scheme& scheme);

  const Chain& chain() const { return chain_; }
  Use use_of(int morphism) const { return uses_[morphism]; }
  // Of a parameter: one per morphism of the forward pass that reads it.
  const std::vector<int>& readers_of(Value parameter) const { return readers_[parameter]; }
  // Of a parameter, also through casts and joins: all that it is used for, in the order of Use.
  std::vector<Use> uses_of(Value parameter) const;
  std::optional<int> state_index(Value v) const;  // l of x_l in the chain
  // Of a map whose result an attention reads: how many numbers at the beginning of a row it reads
  // as queries, the rest being keys and values. Nothing where queries stand elsewhere in the row,
  // or where no attention reads it.
  std::optional<int64_t> queries_of(int morphism) const;

  // The vocabulary. Words that are none of it are refused before these are asked.
  bool is(Value v, std::string_view word) const;
  bool is_of(Value v, std::string_view word) const;  // gradient of parameter, parameter of norm
  bool is_inside(Value v, std::string_view word) const;
  bool morphism_is(int m, std::string_view word) const;
  bool morphism_is_inside(int m, std::string_view word) const;

  // "12 blocks, 4 inputs, 148 parameters (50 matrix, ...), ..." for a selector that found nothing.
  std::string describe() const;

 private:
  void find_attentions();
  void find_uses();
  void note_queries(int scores, int mixing);
  void read_by_attention(Value v, int64_t queries);
  void find_queries();
  void find_uses_of_objects();
  void find_attention_insides();
  void find_feed_forward_insides();
  bool begins_feed_forward(const Morphism& map) const;
  bool is_used(Value v, std::string_view word) const;
  bool is_kind(Value v, std::string_view word) const;

  const Scheme& scheme_;
  Chain chain_;
  std::vector<bool> from_data_;
  std::vector<ParameterKind> kinds_;
  std::vector<Use> uses_;  // per morphism
  // Per object: a bit for every Use that it has or comes of, and one for the first maps of a
  // feed-forward part.
  static constexpr int kBegins = 1 << 15;
  std::vector<uint16_t> uses_of_;
  std::vector<Value> origin_;              // per gradient and state: what it is of, else -1
  std::vector<std::vector<int>> readers_;  // per object, of the forward pass
  std::vector<int> made_by_;
  std::vector<bool> parameter_gradient_, constant_gradient_, in_attention_, in_feed_forward_;
  std::vector<bool> attends_;     // per morphism: an attention, or one of the products that it is
  std::vector<int64_t> queries_;  // per object: numbers at the beginning of a row, or kUnread, ...
  std::vector<int> state_index_;
};

// What a parameter is in a model, in one word for people: what it is used for, "feed_forward", or
// all of that where it is shared, "embedding+readout".
std::string role_of(const Roles& roles, Value parameter);

// The words themselves, for messages.
std::vector<std::string> object_words();
std::vector<std::string> of_words();
std::vector<std::string> region_words();
std::vector<std::string> morphism_words();

}  // namespace adjoint
