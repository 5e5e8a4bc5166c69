// An independent check of plan/owners.h: simulates a step byte by byte, for small schemes. Every
// byte of an arena holds a number that identifies what was written there last; a read that finds
// another number is a fault.
#pragma once
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ops/axes.h"
#include "plan/plan.h"

namespace adjoint {

class ByteOracle {
 public:
  ByteOracle(const Scheme& scheme, const Plan& plan)
      : scheme_(scheme), plan_(plan), holds_(scheme.objects.size()) {}

  // "" where every read finds what was written for it.
  std::string first_fault() {
    for (const auto& [v, storage] : plan_.landings) {
      const Storage& s = plan_.storages[storage];
      for (int64_t i = 0; i < s.size.count; ++i) put({s.tier, s.offset.count + i}, kLanding);
    }
    std::map<Byte, int> given;
    for (const Value in : scheme_.inputs) {
      for (const Byte& byte : bytes_of(in)) {
        if (given[byte]++) fault("two inputs share a byte");
      }
      write_all(in);
    }
    const std::vector<Value> inputs = scheme_.inputs;
    std::vector<std::vector<int64_t>> before;
    for (const Value in : inputs) before.push_back(holds_[in]);
    run(0, plan_.body_begin);
    for (int part = 0; part < scheme_.parts; ++part) {
      run(plan_.body_begin, plan_.body_end);
      for (const Carry& c : scheme_.loop) holds_[c.in] = holds_[c.out];
      for (const Carry& c : scheme_.loop) read(c.in);
    }
    run(plan_.body_end, static_cast<int>(plan_.calls.size()));
    for (const Value out : scheme_.outputs) read(out);
    std::vector<bool> carried(scheme_.objects.size(), false);
    for (const Carry& c : scheme_.carries) {
      carried[c.in] = true;
      holds_[c.in] = holds_[c.out];
      read(c.in);
      read(c.out);
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (scheme_[inputs[i]].role == Role::kInput || carried[inputs[i]]) continue;
      holds_[inputs[i]] = before[i];
      read(inputs[i]);
    }
    return fault_;
  }

 private:
  using Byte = std::pair<Tier, int64_t>;
  static constexpr int64_t kLanding = -1;

  void fault(const std::string& what) {
    if (fault_.empty()) fault_ = what;
  }

  // By element, then by byte of the element.
  std::vector<Byte> bytes_of(const Type& type, const Strides& strides, Byte begin) const {
    std::vector<Byte> bytes;
    const int64_t size = size_of(type.dtype).count;
    for (int64_t k = 0; k < type.num_elements(); ++k) {
      int64_t rest = k, at = 0;
      for (int a = type.rank(); a-- > 0;) {
        at += rest % type.dim(a) * strides[a];
        rest /= type.dim(a);
      }
      for (int64_t i = 0; i < size; ++i)
        bytes.push_back({begin.first, begin.second + at * size + i});
    }
    return bytes;
  }
  std::vector<Byte> bytes_of(Value v) const {
    return bytes_of(scheme_[v].type, plan_.places[v].strides,
                    {plan_.tier_of(v), plan_.offset_of(v).count});
  }

  void put(const Byte& byte, int64_t number) {
    int64_t& there = memory_[byte];
    if (there == kLanding) fault("data lands there");
    there = number;
  }
  void write_all(Value v) {
    holds_[v].clear();
    for (const Byte& byte : bytes_of(v)) {
      put(byte, ++numbers_);
      holds_[v].push_back(numbers_);
    }
  }
  void read(Value v) {
    std::vector<int64_t> all(bytes_of(v).size());
    std::iota(all.begin(), all.end(), 0);
    read(v, all);
  }
  void read(Value v, const std::vector<int64_t>& which) {
    const std::vector<Byte> bytes = bytes_of(v);
    if (holds_[v].size() != bytes.size()) return fault("read before it is made");
    for (const int64_t i : which) {
      const auto found = memory_.find(bytes[i]);
      if (found == memory_.end() || found->second != holds_[v][i]) {
        return fault("%" + std::to_string(v) + " is spoiled");
      }
    }
  }

  void run(int from, int to) {
    for (int at = from; at < to && fault_.empty(); ++at) run_call(at);
  }

  void run_call(int at) {
    const PlannedCall& planned = plan_.calls[at];
    const Morphism& m = scheme_.morphisms[planned.morphism];
    // A view runs nothing; its readers read.
    const bool sees = planned.is_view && op_named(m.op).view;
    for (const Value in : m.inputs) {
      if (holds_[in].empty()) return fault("read before it is made");
      if (!sees && op_named(m.op).view) {
        const auto seen = seen_of(m);
        if (seen) read(in, *seen);
      } else if (!sees) {
        read(in);
      }
    }
    if (!fault_.empty()) return;
    std::map<Byte, int> used;  // by operands and results of this call
    for (const Value in : m.inputs) {
      for (const Byte& byte : bytes_of(in)) ++used[byte];
    }
    if (planned.is_view) return see(m);
    if (m.op == "concat") {
      join(m);
    } else {
      check_results(m);
      for (const Value out : m.outputs) write_all(out);
    }
    for (const Value out : m.outputs) {
      for (const Byte& byte : bytes_of(out)) ++used[byte];
    }
    if (planned.workspace < 0) return;
    const Storage& s = plan_.storages[planned.workspace];
    for (int64_t i = 0; i < s.size.count; ++i) {
      const Byte byte{s.tier, s.offset.count + i};
      if (used.count(byte)) fault("a workspace lies over an operand or a result");
      put(byte, ++numbers_);
    }
  }

  // A result may overwrite an operand only where the op allows it, element by element. No two
  // results share bytes.
  void check_results(const Morphism& m) {
    const auto may = overwrites(call_of(scheme_, m));
    std::map<Byte, int> written;
    for (size_t o = 0; o < m.outputs.size(); ++o) {
      const std::vector<Byte> out = bytes_of(m.outputs[o]);
      for (const Byte& byte : out) {
        if (written[byte]++) fault("two results share a byte");
      }
      for (size_t i = 0; i < m.inputs.size(); ++i) {
        const std::vector<Byte> in = bytes_of(m.inputs[i]);
        const std::set<Byte> there(in.begin(), in.end());
        const bool over = std::any_of(out.begin(), out.end(),
                                      [&](const Byte& byte) { return there.count(byte) > 0; });
        const std::pair<int, int> pair(static_cast<int>(o), static_cast<int>(i));
        if (over && (out != in || !std::count(may.begin(), may.end(), pair))) {
          fault("a result is written over an operand");
        }
      }
    }
  }

  // Which bytes of its operand a view sees, by the op's meaning.
  std::optional<std::vector<int64_t>> seen_of(const Morphism& m) const {
    const Type& made = scheme_[m.outputs[0]].type;
    Type logical = scheme_[m.inputs[0]].type;
    for (Axis& axis : logical.axes) axis.padded = 0;
    int64_t offset = 0;
    OpCall call = call_of(scheme_, m);
    call.inputs[0] = logical;
    const auto strides = op_named(m.op).view(call, dense_strides(logical), offset);
    if (!strides) return std::nullopt;
    std::vector<int64_t> seen;
    const Byte begin{Tier::kDevice, offset * size_of(made.dtype).count};
    for (const Byte& byte : bytes_of(made, *strides, begin)) seen.push_back(byte.second);
    return seen;
  }

  // The bytes of a view.
  void see(const Morphism& m) {
    const Value out = m.outputs[0];
    std::vector<int64_t> seen;
    if (m.op == "concat") {
      seen = joined(m, [&](size_t i, int64_t k) { return holds_[m.inputs[i]][k]; });
    } else if (op_named(m.op).view) {
      const auto which = seen_of(m);
      if (!which) return fault("no view");
      for (const int64_t i : *which) seen.push_back(holds_[m.inputs[0]][i]);
    } else {
      return fault("a call that does not run is no view");
    }
    holds_[out] = seen;
    if (m.op == "concat") read(out);
  }

  // Calls f(operand, its byte) for every byte of a concat's result.
  template <class F>
  std::vector<int64_t> joined(const Morphism& m, const F& f) const {
    const Type& whole = scheme_[m.outputs[0]].type;
    const int64_t size = size_of(whole.dtype).count;
    std::vector<int64_t> all(whole.num_elements() * size);
    const auto starts = operand_starts(scheme_, m).value();
    for (size_t i = 0; i < m.inputs.size(); ++i) {
      int64_t begin = 0;
      const Strides strides = dense_strides(whole);
      for (size_t a = 0; a < strides.size(); ++a) begin += starts[i][a] * strides[a];
      const auto to = bytes_of(scheme_[m.inputs[i]].type, strides, {Tier::kDevice, begin * size});
      for (size_t k = 0; k < to.size(); ++k) all[to[k].second] = f(i, static_cast<int64_t>(k));
    }
    return all;
  }

  // Operands that are already in place are not copied; the others are, one after another.
  void join(const Morphism& m) {
    const Value out = m.outputs[0];
    const std::vector<Byte> to = bytes_of(out);
    std::vector<std::pair<size_t, int64_t>> from(to.size());
    size_t next = 0;
    const auto order = joined(m, [&](size_t i, int64_t k) {
      from[next] = {i, k};
      return static_cast<int64_t>(next++);
    });
    holds_[out].assign(to.size(), 0);
    std::vector<bool> home(m.inputs.size(), true);
    for (size_t b = 0; b < to.size(); ++b) {
      const auto [i, k] = from[order[b]];
      if (bytes_of(m.inputs[i])[k] != to[b]) home[i] = false;
    }
    std::map<Byte, size_t> operand_of;
    for (size_t i = 0; i < m.inputs.size(); ++i) {
      for (const Byte& byte : bytes_of(m.inputs[i])) operand_of[byte] = i;
    }
    for (size_t b = 0; b < to.size(); ++b) {
      const auto [i, k] = from[order[b]];
      if (home[i]) {
        holds_[out][b] = holds_[m.inputs[i]][k];
        continue;
      }
      if (operand_of.count(to[b])) fault("a copy is written over an operand");
      put(to[b], ++numbers_);
      holds_[out][b] = numbers_;
    }
  }

  const Scheme& scheme_;
  const Plan& plan_;
  std::map<Byte, int64_t> memory_;
  std::vector<std::vector<int64_t>> holds_;  // per object: the numbers of its bytes
  int64_t numbers_ = 0;
  std::string fault_;
};

}  // namespace adjoint
