// How a model stands in a format of others: a section of its text that says which of the format's
// settings are which of ours, and what the format calls the weights. It is read forwards to take a
// model in and backwards to give one out.
//
//   format huggingface "LlamaForCausalLM":
//     field num_hidden_layers = layers
//     field num_key_value_heads = kv_heads else heads
//     field hidden_act = "silu"
//     module "block[{l}].q" = "model.layers.{l}.self_attn.q_proj"
//     ignore use_cache
//
// Grammar:
//   format  = "format" name text {text} ":" newline { indented line }
//   line    = "field" path {"or" path} ["[" "l" "<" term "]"] "=" value { suffix }
//           | "module" text "=" text ["transposed"]
//           | "ignore" "tensor" text ["when" value]
//           | "ignore" path {path}
//           | "set" settings
//   suffix  = "in" literal {literal} | "whole" | "from" term | "null" term | "else" term | "if"
//   value
//           | "unwritten"
// Terms and values are term.h's.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "scheme/term.h"

namespace adjoint {

struct Setting {
  std::string name;
  Term value;
  Position at = {};
  bool operator==(const Setting&) const = default;
};

// One setting of the format. Where `value` is the name of an axis or number of ours, the two are
// each other; any other value is what the field must be.
struct FormatField {
  std::vector<std::string> paths;  // rope_scaling.factor; the first is written, any is read
  std::vector<Term> each = {};     // a list of so many entries, `l` counts them: none or one
  Term value = {};                 // alternatives are joined by `or`
  std::vector<Term> words = {};    // the number k stands for the k-th of these
  bool whole = false;              // written without a fraction, as axes are
  // What it is where that is known, whatever the field says: of a list, first(list, "word").
  std::vector<Term> before = {};
  std::vector<Term> null = {};  // what null says: none or one
  std::vector<Term> otherwise =
      {};  // what it is where the field is absent: the first that is known
  std::vector<Term> condition = {};  // written only if it holds: none or one
  bool unwritten = false;            // read, and never written
  Position at = {};
  bool operator==(const FormatField&) const = default;
};

// The weights of a call. In braces stand letters that count: `{l}` in both names is the same
// number; a letter that ours lacks counts the first axis of the weight, one tensor each. What
// stands in [brackets] of theirs may be absent from what is read.
struct FormatModule {
  std::string ours, theirs;
  bool transposed = false;  // the format has matrices as [in, out]
  Position at = {};
  bool operator==(const FormatModule&) const = default;
};

// A tensor that says nothing: a buffer, or a copy of a weight that is shared.
struct IgnoredTensor {
  std::string name;             // a pattern, as of FormatModule
  std::vector<Term> when = {};  // none or one
  bool operator==(const IgnoredTensor&) const = default;
};

struct Format {
  std::string kind;                        // huggingface
  std::vector<std::string> architectures;  // the first is written
  std::vector<FormatField> fields = {};
  std::vector<FormatModule> modules = {};
  std::vector<std::string> ignored = {};  // fields that do not change what is computed
  std::vector<IgnoredTensor> ignored_tensors = {};
  std::vector<Setting> set = {};  // what the format leaves unsaid
  Position at = {};
  bool operator==(const Format&) const = default;
};

// Reads what follows the word `format`.
Format parse_format(Cursor& in);
std::string print(const Format& format);

// name=value name=value, up to the end of the line; a name that is set twice is refused.
std::vector<Setting> parse_settings(Cursor& in);
std::string print_settings(const std::vector<Setting>& settings);

}  // namespace adjoint
