// s0 = all_reduce(t0), s1 = all_reduce(t1), ...  ->  s0, s1, ... = all_reduce(t0, t1, ...), and so
// reduce_scatter and all_gather: small objects travel together, up to `size` bytes. A message has a
// price of its own, which a vector of a kilobyte hardly outweighs; loss and count, and the
// gradients of norms and biases, are such. Every element is summed as before, in rank order, so no
// bit changes. What is joined waits for the last of it, so the bucket is bounded.
#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "functors/functor.h"
#include "functors/gangs.h"
#include "ops/collective.h"

namespace adjoint {

namespace {

struct Bucket {
  std::vector<int> calls = {};
  int last_maker = -1;                   // of what they read
  int first_reader = 0, first_call = 0;  // of what they make; of them
  int64_t bytes = 0;
};

class Buckets {
 public:
  Buckets(const Scheme& scheme, int64_t size) : scheme_(scheme), graph_(scheme), size_(size) {}

  std::vector<Bucket> find() const {
    GangKinds kinds(scheme_);
    for (int m = 0; m < graph_.num_calls(); ++m) {
      const Morphism& call = graph_.call(m);
      const bool joins = op_named(call.op).collective && call.inputs.size() == 1 &&
                         ranks_of(call_of(scheme_, call)) > 1 && bytes_of(call) <= size_;
      if (joins) kinds.add(m, operand_dtypes(scheme_, call));
    }
    std::vector<Bucket> all;
    for (const auto& [kind, calls] : kinds.all()) fill(calls, all);
    return all;
  }

 private:
  int64_t bytes_of(const Morphism& m) const {
    return std::max(scheme_[m.inputs[0]].type.bytes().count,
                    scheme_[m.outputs[0]].type.bytes().count);
  }

  Bucket alone(int m) const {
    const Morphism& call = graph_.call(m);
    Bucket b{.calls = {m},
             .last_maker = graph_.maker(call.inputs[0]),
             .first_reader = graph_.num_calls(),
             .first_call = m,
             .bytes = bytes_of(call)};
    for (const Value v : call.after) b.last_maker = std::max(b.last_maker, graph_.maker(v));
    for (const int before : graph_.held_by(m)) b.last_maker = std::max(b.last_maker, before);
    for (const int reader : graph_.readers(call.outputs[0])) {
      b.first_reader = std::min(b.first_reader, reader);
    }
    for (const int later : graph_.holds(m)) b.first_reader = std::min(b.first_reader, later);
    return b;
  }

  // One bucket after the other. A call goes into the open one if all operands are there before
  // anybody reads a result.
  void fill(const std::vector<int>& calls, std::vector<Bucket>& all) const {
    Bucket open;
    const auto close = [&] {
      if (open.calls.size() > 1) all.push_back(open);
    };
    for (const int m : calls) {
      const Bucket one = alone(m);
      Bucket both = open;
      both.calls.push_back(m);
      both.last_maker = std::max(open.last_maker, one.last_maker);
      both.first_reader = std::min(open.first_reader, one.first_reader);
      both.bytes += one.bytes;
      if (!open.calls.empty() && both.bytes <= size_ && both.last_maker < both.first_reader) {
        open = std::move(both);
        continue;
      }
      close();
      open = one;
    }
    close();
  }

  const Scheme& scheme_;
  Graph graph_;
  int64_t size_;
};

Morphism joined(const Scheme& scheme, const Bucket& bucket) {
  Morphism one = scheme.morphisms[bucket.calls[0]];
  one.source = with_facet(one.source, "bucket");
  one.inputs.clear();
  one.outputs.clear();
  std::set<Value> after;
  std::vector<int64_t> sizes;
  for (const int call : bucket.calls) {
    const Morphism& m = scheme.morphisms[call];
    one.inputs.push_back(m.inputs[0]);
    one.outputs.push_back(m.outputs[0]);
    after.insert(m.after.begin(), m.after.end());
    if (m.attrs.count("size")) sizes.push_back(std::get<int64_t>(m.attrs.at("size")));
  }
  one.after.assign(after.begin(), after.end());
  if (!sizes.empty()) {
    one.attrs.erase("size");
    one.attrs["sizes"] = sizes;
  }
  return one;
}

Scheme bucket(Scheme scheme, Application& application) {
  const auto size = application.args.whole("size");
  // Kernels of a GPU take one operand so far.
  if (application.options.target != Target::kCpu) return scheme;
  const std::vector<Bucket> buckets = Buckets(scheme, size).find();
  std::map<int, std::vector<Morphism>> before;  // by the call in front of which they stand
  std::set<int> gone;
  for (const Bucket& b : buckets) {
    before[std::max(b.last_maker + 1, b.first_call)].push_back(joined(scheme, b));
    gone.insert(b.calls.begin(), b.calls.end());
    application.matches += static_cast<int64_t>(b.calls.size());
    ++application.counts["buckets"];
  }
  std::vector<Morphism> left;
  left.reserve(scheme.morphisms.size());
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    const int m = static_cast<int>(i);
    if (const auto here = before.find(m); here != before.end()) {
      for (Morphism& one : here->second) left.push_back(std::move(one));
    }
    if (!gone.count(m)) left.push_back(std::move(scheme.morphisms[i]));
  }
  scheme.morphisms = std::move(left);
  return scheme;
}

}  // namespace

extern const Functor functor_bucket = {
    .name = "bucket",
    .summary = "small sums over ranks, and small gathers, travel together",
    .law = Law::kExact,
    .params = {{.name = "size",
                .otherwise = "1048576",
                .summary = "bytes of a bucket at most; what is larger travels alone"}},
    .may_match_none = true,
    .rules = {{FunctorPhase::kExact, bucket}},
};

}  // namespace adjoint
